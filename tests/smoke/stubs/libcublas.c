/* Stands in for libcublas.so. A multiplication takes 2 ms and computes nothing. STUB_CUBLAS: its version. Tests only. */
#include <stdlib.h>
#include <unistd.h>

int cublasCreate_v2(void **handle) { *handle = (void *)1; return 0; }
int cublasDestroy_v2(void *handle) { (void)handle; return 0; }
int cublasSetMathMode(void *handle, int mode) { (void)handle; (void)mode; return 0; }

int cublasGetVersion_v2(void *handle, int *version) {
  (void)handle;
  *version = getenv("STUB_CUBLAS") ? atoi(getenv("STUB_CUBLAS")) : 120401;
  return 0;
}

int cublasGemmEx(void) { usleep(2000); return 0; }
