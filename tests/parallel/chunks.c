/* Chunks that the ranks of a node need: each is decoded once, and a rank that is killed does the others no harm. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chunks.h"
#include "settings.h"

enum { CHUNKS = 300 };

static vt_world *open_world(const char *per_node, const char *settings)
{
    vt_launch launch;
    vt_world *world = NULL;
    SCOPED(vt_config) *config = default_config();
    set_options(config, settings);
    if (per_node != NULL) setenv("VITRAIN_RANKS_PER_NODE", per_node, 1);
    EXPECT_OK(vt_launch_detect(&launch));
    EXPECT_OK(vt_world_open(config, &launch, &world));
    unsetenv("VITRAIN_RANKS_PER_NODE");
    return world;
}

/* How many chunks all ranks decode. */
static double decoded_by_all(vt_world *world, vt_chunk_cache *cache)
{
    double decoded = 0;
    for (int64_t i = 0; i < CHUNKS; i++) decoded += use_chunk(cache, (i + world->rank * 7) % CHUNKS);
    vt_world_sum(world, &decoded, 1);
    return decoded;
}

TEST(chunks_are_decoded_once_on_a_node)
{
    const int ranks = vt_test_engine->size, tensor = ranks % 2 == 0 ? 2 : 1;
    for (int per_node = 1; per_node <= 4; per_node *= 2) {
        const char number[] = {(char)('0' + per_node), '\0'};
        vt_world *world = open_world(number, SETTINGS("tensor_parallel=%d num_heads=2", tensor));
        SCOPED(vt_chunk_cache) cache;
        vt_chunk_cache_open(&cache, 1 << 20);
        use_chunk(&cache, CHUNKS); /* in memory of its own */
        vt_chunk_cache_share(&cache, world);
        const int sharers = per_node > 1 ? tensor : 1, place = sharers > 1 ? world->rank % 2 : 0;
        EXPECT(cache.sharers == sharers && cache.place == place, "%d of %d", cache.place, cache.sharers);
        const double decoded = decoded_by_all(world, &cache);
        EXPECT(decoded == CHUNKS * world->nodes, "%g chunks were decoded on %d nodes", decoded, world->nodes);
        vt_world_close(&world, false);
    }
}

TEST(chunks_of_a_rank_that_is_killed)
{
    enum { KILLS = 40 };
    vt_world *world = open_world(NULL, "");
    SCOPED(vt_chunk_cache) cache;
    vt_chunk_cache_open(&cache, 1 << 20);
    vt_chunk_cache_share(&cache, world);
    for (int i = 0; i < KILLS && world->rank == 0; i++) {
        const pid_t other = fork(); /* another rank, as far as the memory knows */
        if (other == 0)
            for (int64_t n = 1000;; n++) use_chunk(&cache, n);
        for (int64_t n = 0; n < 100 * (i + 1); n++) use_chunk(&cache, n % 500);
        kill(other, SIGKILL);
        waitpid(other, NULL, 0);
    }
    vt_world_any(world, false);
    decoded_by_all(world, &cache);
    vt_world_close(&world, false);
}
