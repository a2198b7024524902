/* Stands in for libnvidia-ml.so.1 where there is no GPU. Tests only.
   STUB_DRIVER: the driver's release; without it nvmlInit returns STUB_NVML (9: no driver). STUB_COUNT: the number of GPUs.
   Values that are read again after the work has begun have changed, as on GPUs that work. With STUB_ASLEEP=1 they have not.
   Values of GPUs, the same for all (STUB_USED=...) or for one alone (STUB_USED_2=...): USED (MB at the start), TOTAL (MB),
   LOAD (%), PROCESSES, MODE (compute mode), MIG, HELD (mask of reasons for lower clocks), ECC, REMAP (row remapping failed),
   LANES, NEAR (mask of cores), LINKS (NVLinks, to a switch), VIRTUAL (2: a vGPU), MEMORY (-1: not reported), RISE (tenths of a
   second that the clock takes from idle to full, beginning with the first query). Values after the work has begun: WORK (more
   MB), LOAD_THEN (%, -1: not supported), PROCESSES_THEN, ECC_THEN. STUB_LEVEL: the common ancestor of every pair. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { char old[16]; unsigned domain, bus, device, kind, subsystem; char text[32]; } pci_t;

static unsigned long index_of(void *handle) { return (unsigned long)handle - 1; }

static long setting(const char *name, void *handle, long otherwise) {
  char key[64];
  const char *text;
  snprintf(key, sizeof key, "STUB_%s_%lu", name, index_of(handle));
  text = getenv(key);
  if (!text) {
    snprintf(key, sizeof key, "STUB_%s", name);
    text = getenv(key);
  }
  return text ? atol(text) : otherwise;
}

int nvmlInit_v2(void) { return getenv("STUB_DRIVER") ? 0 : getenv("STUB_NVML") ? atoi(getenv("STUB_NVML")) : 9; }
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

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
  *handle = (void *)(unsigned long)(atoi(uuid + 4) + 1);
  return strncmp(uuid, "GPU-", 4) == 0 ? 0 : 2;
}

int nvmlDeviceGetName(void *handle, char *out, unsigned size) { snprintf(out, size, "NVML %lu", index_of(handle)); return 0; }
int nvmlDeviceGetUUID(void *handle, char *out, unsigned size) { snprintf(out, size, "GPU-%lu", index_of(handle)); return 0; }

int nvmlDeviceGetPciInfo_v3(void *handle, pci_t *out) {
  memset(out, 0, sizeof *out);
  out->bus = (unsigned)index_of(handle) + 1;
  return 0;
}

int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory) {
  static int asked[64];
  long work = asked[index_of(handle) % 64]++ && !getenv("STUB_ASLEEP") ? setting("WORK", handle, 400) : 0;
  if (setting("MEMORY", handle, 0) < 0) return 3; /* not supported */
  memory->total = (unsigned long long)setting("TOTAL", handle, 16000) * 1000000;
  memory->used = (unsigned long long)(setting("USED", handle, 100) + work) * 1000000;
  memory->free = memory->total - memory->used;
  return 0;
}

int nvmlDeviceGetUtilizationRates(void *handle, utilization_t *load) {
  static int asked[64];
  int works = asked[index_of(handle) % 64]++ && !getenv("STUB_ASLEEP");
  long then = setting("LOAD_THEN", handle, 93);
  if (then < 0) return 3; /* not supported */
  load->gpu = works ? (unsigned)then : (unsigned)setting("LOAD", handle, 0);
  load->memory = 3;
  return 0;
}

int nvmlDeviceGetPowerManagementLimit(void *handle, unsigned *limit) { (void)handle; *limit = 250000; return 0; }
int nvmlDeviceGetCurrPcieLinkGeneration(void *handle, unsigned *value) { (void)handle; *value = 3; return 0; }
int nvmlDeviceGetMaxPcieLinkGeneration(void *handle, unsigned *value) { (void)handle; *value = 3; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(void *handle, unsigned *value) { (void)handle; *value = 16; return 0; }

int nvmlDeviceGetCurrPcieLinkWidth(void *handle, unsigned *value) {
  *value = (unsigned)setting("LANES", handle, 0);
  return *value ? 0 : 3; /* not supported */
}

int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, void *processes) {
  static int asked[64];
  long before = setting("PROCESSES", handle, 0);
  (void)processes;
  *count = (unsigned)(asked[index_of(handle) % 64]++ ? setting("PROCESSES_THEN", handle, before) : before);
  return *count ? 7 : 0;
}

int nvmlDeviceGetCpuAffinity(void *handle, unsigned words, unsigned long *mask) {
  memset(mask, 0, words * sizeof *mask);
  mask[0] = (unsigned long)setting("NEAR", handle, 0);
  return mask[0] ? 0 : 3;
}

int nvmlDeviceGetComputeMode(void *handle, unsigned *mode) { *mode = (unsigned)setting("MODE", handle, 0); return 0; }
int nvmlDeviceGetPersistenceMode(void *handle, unsigned *mode) { *mode = (unsigned)setting("PERSISTENCE", handle, 1); return 0; }

int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *then) {
  *now = *then = (unsigned)setting("MIG", handle, 0);
  return 0;
}

int nvmlDeviceGetRemappedRows(void *handle, unsigned *a, unsigned *b, unsigned *pending, unsigned *failed) {
  *a = *b = *pending = 0;
  *failed = (unsigned)setting("REMAP", handle, 0);
  return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *mask) {
  *mask = (unsigned long long)setting("HELD", handle, 0);
  return 0;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *value) { (void)handle; (void)sensor; *value = 61; return 0; }

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned *value) {
  static double first;
  double rise = (double)setting("RISE", handle, 0) / 10, since;
  (void)kind;
  first = first > 0 ? first : seconds();
  since = seconds() - first;
  *value = since < rise ? 345 + (unsigned)(1035 * since / rise) : 1380;
  return 0;
}
int nvmlDeviceGetMaxClockInfo(void *handle, int kind, unsigned *value) { (void)handle; (void)kind; *value = 1410; return 0; }

int nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, unsigned long long *value) {
  static int asked[64];
  long before = setting("ECC", handle, 0);
  (void)kind;
  (void)counter;
  *value = (unsigned long long)(asked[index_of(handle) % 64]++ ? setting("ECC_THEN", handle, before) : before);
  return 0;
}

int nvmlDeviceGetVirtualizationMode(void *handle, unsigned *mode) { *mode = (unsigned)setting("VIRTUAL", handle, 0); return 0; }

int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *active) {
  *active = link < (unsigned)setting("LINKS", handle, 0);
  return 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, pci_t *out) {
  (void)handle;
  (void)link;
  memset(out, 0, sizeof *out);
  out->bus = 0xEE; /* a switch */
  return 0;
}

int nvmlDeviceGetNvLinkVersion(void *handle, unsigned link, unsigned *value) { (void)handle; (void)link; *value = 5; return 0; }
int nvmlDeviceGetP2PStatus(void *one, void *other, int kind, int *status) { (void)one; (void)other; (void)kind; *status = 0; return 0; }

int nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, int *level) {
  (void)one;
  (void)other;
  *level = getenv("STUB_LEVEL") ? atoi(getenv("STUB_LEVEL")) : 20;
  return 0;
}
