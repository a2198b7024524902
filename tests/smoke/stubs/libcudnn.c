/* Stands in for libcudnn.so.N. It reports the version in STUB_CUDNN, as 7104 or 90100. Tests only. */
#include <stdlib.h>

unsigned long cudnnGetVersion(void) { return getenv("STUB_CUDNN") ? strtoul(getenv("STUB_CUDNN"), 0, 10) : 8907; }
