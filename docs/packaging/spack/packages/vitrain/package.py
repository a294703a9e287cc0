# A Spack recipe (Spack 1.0 or newer): docs/packaging.md says how to use it and how far it was run.
from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class Vitrain(MakefilePackage, CudaPackage):
    """Trains models of weather, cosmology and text, on CPUs or GPUs, with one rank or many."""

    license("Apache-2.0")

    # The source is a checkout or an unpacked tarball of `make dist`: spack dev-build, spack develop.
    version("main")

    variant("mpi", default=True, description="Runs of several ranks over MPI")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("gmake@4.2:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("protobuf-c")  # also protoc-c, while it builds
    depends_on("hdf5+hl~mpi")  # each rank opens files of its own; hdf5+mpi would want MPI's headers everywhere
    depends_on("libyaml")
    depends_on("libdeflate")
    depends_on("libunistring")
    depends_on("libpng")
    depends_on("jansson")
    depends_on("udunits")
    depends_on("c-blosc")
    depends_on("zstd")
    depends_on("lz4")
    depends_on("mpi", when="+mpi")
    depends_on("cuda@12:", when="+cuda")
    depends_on("cudnn", when="+cuda")
    depends_on("nccl", when="+cuda")

    conflicts("cuda_arch=none", when="+cuda", msg="say which GPUs: cuda_arch=80 (A100), 90 (H100)")

    @property
    def settings(self):
        """What every call of make is given: MPI and CUDA are in or out as asked, never as found."""
        spec = self.spec
        settings = [
            "BUILD=build/spack",  # beside what is built here by hand
            f"CC={spack_cc}",
            f"PREFIX={self.prefix}",
            "CFLAGS=-O2",
            f"MPI={'yes' if spec.satisfies('+mpi') else 'no'}",
        ]
        if spec.satisfies("+mpi"):
            settings.append(f"MPICC={spec['mpi'].mpicc}")
        if spec.satisfies("+cuda"):
            architectures = " ".join(f"sm_{a}" for a in spec.variants["cuda_arch"].value)
            settings += [
                f"CXX={spack_cxx}",
                f"NVCC={spec['cuda'].prefix.bin.nvcc}",
                f"GPU_ARCH={architectures}",
            ]
        else:
            settings += ["NVCC=", "HOST_CUDA="]
        return settings

    @property
    def build_targets(self):
        return ["vitrain", *self.settings]

    @property
    def install_targets(self):
        return ["install", *self.settings]

    def setup_run_environment(self, env):
        if self.spec.satisfies("+cuda"):  # opened when the first GPU is used, by these names
            env.set("CUDNN_HOME", self.spec["cudnn"].prefix)
            env.set("NCCL_HOME", self.spec["nccl"].prefix)
            env.set("CUDA_HOME", self.spec["cuda"].prefix)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        vitrain = Executable(self.prefix.bin.vitrain)
        vitrain("synth", "data", "--img_size=[16,32]", "--channels=4", "--steps_per_year=240", "--valid_steps=24")
        vitrain(
            "--config=demo",
            "--data_dir=data",
            "--img_size=[16,32]",
            "--n_in_channels=4",
            "--n_out_channels=4",
            "--num_epochs=1",
            "--device=cpu",
        )
