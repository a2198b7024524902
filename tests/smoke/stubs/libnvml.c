/* Stands in for libnvidia-ml.so.1 where there is no GPU. Tests only. STUB_DRIVER: the driver's release. STUB_COUNT: GPUs. */
#include <stdio.h>
#include <stdlib.h>

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned gpu, memory; } utilization_t;

int nvmlInit_v2(void) { return getenv("STUB_DRIVER") ? 0 : 9; }
int nvmlShutdown(void) { return 0; }

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
  snprintf(out, size, "%s", getenv("STUB_DRIVER"));
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = getenv("STUB_COUNT") ? (unsigned)atoi(getenv("STUB_COUNT")) : 0;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = (void *)(unsigned long)(index + 1); return 0; }

int nvmlDeviceGetName(void *handle, char *out, unsigned size) {
  snprintf(out, size, "NVML %lu", (unsigned long)handle - 1);
  return 0;
}

int nvmlDeviceGetUUID(void *handle, char *out, unsigned size) {
  snprintf(out, size, "GPU-%lu", (unsigned long)handle - 1);
  return 0;
}

int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory) {
  (void)handle;
  memory->total = 16ULL << 30;
  memory->free = 15ULL << 30;
  memory->used = 1ULL << 30;
  return 0;
}

int nvmlDeviceGetUtilizationRates(void *handle, utilization_t *load) { (void)handle; load->gpu = 7; load->memory = 3; return 0; }
int nvmlDeviceGetPowerManagementLimit(void *handle, unsigned *limit) { (void)handle; *limit = 250000; return 0; }
int nvmlDeviceGetCurrPcieLinkGeneration(void *handle, unsigned *value) { (void)handle; *value = 3; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(void *handle, unsigned *value) { (void)handle; (void)value; return 3; /* not supported */ }
