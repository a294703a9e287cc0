/* Linked into the programs of `make coverage`: a process that leaves by _exit or MPI_Abort writes its counts, too. */
#include <stdlib.h>

#ifdef VT_HAS_MPI
#include <mpi.h>

int __real_MPI_Abort(MPI_Comm ranks, int code);
int __wrap_MPI_Abort(MPI_Comm ranks, int code);
#endif

void __gcov_dump(void);
_Noreturn void __real__exit(int code);
_Noreturn void __wrap__exit(int code);

_Noreturn void __wrap__exit(int code)
{
    __gcov_dump();
    __real__exit(code);
}

#ifdef VT_HAS_MPI
int __wrap_MPI_Abort(MPI_Comm ranks, int code)
{
    __gcov_dump();
    return __real_MPI_Abort(ranks, code);
}
#endif
