/* Stands in for libnccl.so.2. It reports the version in STUB_NCCL, as 2708 or 22105. Tests only. */
#include <stdlib.h>

int ncclGetVersion(int *version) { *version = getenv("STUB_NCCL") ? atoi(getenv("STUB_NCCL")) : 22105; return 0; }
