/* Which checkpoint a path means, and the messages for paths that mean none. */
#include "checkpoint/find.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/text.h"
#include "storage/output_file.h"
#include "storage/safetensors.h"
#include "test.h"

/* The C library's, which also says what it last brought to the disk, and counts. */
static int synchronised;
static struct stat last_synchronised;
int fsync(int file)
{
    synchronised++;
    fstat(file, &last_synchronised);
    return (int)syscall(SYS_fsync, file);
}

static void expect_found(const char *name, vt_checkpoint_use use, const char *expected)
{
    char *found = NULL;
    EXPECT_OK(vt_checkpoint_find(test_path(name), use, &found));
    EXPECT(found != NULL && strcmp(found, test_path(expected)) == 0);
    free(found);
}

static void expect_refused(const char *path, vt_checkpoint_use use, const char *part)
{
    char *found = NULL;
    EXPECT_ERROR(vt_checkpoint_find(path, use, &found), part);
    EXPECT(found == NULL);
}

/* A run's path means its best checkpoint, or its newest; --resume continues from the newest. */
TEST(which_of_a_run)
{
    const vt_checkpoint_use show = VT_CHECKPOINT_TO_SHOW, resume = VT_CHECKPOINT_TO_RESUME;
    test_write("run/checkpoints/step-00000009/checkpoint.h5", "x", 1);
    test_write("run/checkpoints/step-00000010/checkpoint.h5", "x", 1);
    test_write("run/checkpoints/step-00000011.tmp/checkpoint.h5", "x", 1);
    test_write("run/checkpoints/step-00000012.aside/checkpoint.h5", "x", 1);
    expect_found("run", show, "run/checkpoints/step-00000010");
    const char *link = test_path("run/checkpoints/best");
    EXPECT(symlink("step-00000009", link) == 0);
    expect_found("run", show, "run/checkpoints/step-00000009");
    expect_found("run//", VT_CHECKPOINT_TO_BEGIN, "run/checkpoints/step-00000009");
    expect_found("run/checkpoints", show, "run/checkpoints/step-00000009");
    expect_found("run", resume, "run/checkpoints/step-00000010");
    expect_found("run/checkpoints/", resume, "run/checkpoints/step-00000010");
    expect_found("run/checkpoints/step-00000009", resume, "run/checkpoints/step-00000009");
    expect_found("run/checkpoints/best/", show, "run/checkpoints/step-00000009");
    EXPECT(unlink(link) == 0 && symlink("step-00000008", link) == 0); /* which no longer exists */
    expect_found("run", show, "run/checkpoints/step-00000010");
    EXPECT(unlink(link) == 0); /* where no links can be made, it is a file */
    test_write("run/checkpoints/best", "step-00000009\r\n", 15);
    expect_found("run", show, "run/checkpoints/step-00000009");
    expect_found("run/checkpoints/best", resume, "run/checkpoints/step-00000009");
    test_write("run/checkpoints/best", "step-00000008", 13);
    expect_found("run", show, "run/checkpoints/step-00000010");
    expect_refused(link, show, "names step-00000008, but there is no such checkpoint beside it");
    EXPECT(unlink(link) == 0); /* a copy that followed the link */
    test_write("run/checkpoints/best/checkpoint.h5", "x", 1);
    expect_found("run", show, "run/checkpoints/best");
}

TEST(what_is_neither)
{
    test_write("fresh/checkpoints/note", "x", 1);
    test_write("data/train/2001.h5", "x", 1);
    expect_refused(test_path("fresh"), VT_CHECKPOINT_TO_SHOW, "is a run that has no checkpoint yet");
    expect_refused(test_path("data"), VT_CHECKPOINT_TO_SHOW,
                   "is neither a checkpoint nor a run; expected the directory");
    expect_refused(test_path("nowhere"), VT_CHECKPOINT_TO_BEGIN,
                   "No such file or directory; expected the directory of a checkpoint, "
                   "like runs/demo/1CPU/00/checkpoints/best, or of a run, or a file");
    expect_refused(test_write("note.txt", "hello", 5), VT_CHECKPOINT_TO_RESUME, "is neither a checkpoint nor a run");
}

static void expect_pytorch(const char *name, const void *bytes, size_t count, const char *kind)
{
    const char *path = test_write(name, bytes, count);
    expect_refused(path, VT_CHECKPOINT_TO_SHOW, kind);
    expect_refused(path, VT_CHECKPOINT_TO_BEGIN, "save_file(torch.load(");
    expect_refused(path, VT_CHECKPOINT_TO_RESUME, "--resume goes on from vitrain's own checkpoints only");
}

/* Recognised by their content, whatever they are called, then by the name. */
TEST(files_of_pytorch)
{
    enum { FAR = 200000 };
    static const char zip[] = "PK\3\4\24\0\0\0\0\0\0\0\0\0zip/data.pkl",
                      old[] = "\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.";
    static const char pickle[] = "\x80\4\x95\0\0\0\0\0\0\0}\x94.";
    static char far[FAR] = "PK\3\4", tar[512] = "sys_info";
    memcpy(far + FAR - 100, "data.pkl", sizeof "data.pkl");
    memcpy(tar + 257, "ustar", sizeof "ustar");
    expect_pytorch("a.pt", zip, sizeof zip, "is a PyTorch file (a zip archive with data.pkl)");
    expect_pytorch("weights", far, FAR, "is a PyTorch file (a zip archive with data.pkl)");
    expect_pytorch("renamed.safetensors", zip, sizeof zip, "is a PyTorch file (a zip archive with data.pkl)");
    expect_pytorch("b.bin", old, sizeof old - 1, "is a PyTorch file of the old form (a pickle)");
    expect_pytorch("c.pkl", pickle, sizeof pickle, "is a Python pickle");
    expect_pytorch("d", tar, sizeof tar, "is a PyTorch file of the oldest form (a tar archive)");
    expect_pytorch("e.pt", "", 0, "is a PyTorch file by its name");
    expect_pytorch("f.pth", "?", 1, "is a PyTorch file by its name");
    expect_pytorch("g.tar", "?", 1, "is a PyTorch file by its name");
    expect_pytorch("h.ckpt", "?", 1, "is a PyTorch file by its name");
    EXPECT(vt_pytorch_file_kind(test_write("notes.zip", "PK\3\4notes.txt", 13)) == NULL);
    test_write("sharded/.metadata", "x", 1);
    expect_refused(test_path("sharded"), VT_CHECKPOINT_TO_BEGIN, "is a directory of torch.distributed.checkpoint");
}

/* A file of parameters alone can begin a run, and do nothing else; it may begin like a pickle. */
TEST(files_of_parameters)
{
    char header[8 + 0x280] = "\x80\2\0\0\0\0\0\0{}";
    memset(header + 10, ' ', sizeof header - 10);
    const char *path = test_write("m.safetensors", header, sizeof header);
    expect_found("m.safetensors", VT_CHECKPOINT_TO_BEGIN, "m.safetensors");
    expect_refused(path, VT_CHECKPOINT_TO_SHOW, "holds parameters alone, without the configuration of their model");
    expect_refused(path, VT_CHECKPOINT_TO_RESUME, "begin a run with --init_from=");
}

/* A power cut must not take the directories of checkpoints that are on the disk. */
TEST(names_of_new_directories_are_on_the_disk)
{
    struct stat run;
    const char *deep = vt_test_owned(vt_text_format("%s/run/checkpoints/a/b", vt_test_directory()));
    EXPECT_OK(vt_output_make_directory(test_path("run")));
    synchronised = 0;
    EXPECT_OK(vt_output_make_directory(test_path("run/checkpoints")));
    EXPECT(stat(test_path("run"), &run) == 0 && last_synchronised.st_ino == run.st_ino && synchronised == 1);
    EXPECT_OK(vt_output_make_directory(deep));
    EXPECT(synchronised == 3, "%d", synchronised);
    EXPECT_OK(vt_output_make_directory(test_path("run/checkpoints")));
    EXPECT(synchronised == 3, "%d", synchronised);
}
