/* Stands in for libcuda.so.1 where there is no GPU. Tests only.
   STUB_INIT: the result of cuInit. STUB_VERSION: 12040 for CUDA 12.4. STUB_DEVICES: "name|major|minor|GB;..."
   STUB_PEERS: 0 for no peer access at all. STUB_APART: "0-2,1-3", pairs without peer access.
   STUB_FIRST: the PCI bus of the first device, minus one. It stands for devices left out by CUDA_VISIBLE_DEVICES, which
   this library does not read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int number(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text ? atoi(text) : otherwise;
}

static int device(int index, char *name, int *major, int *minor, int *gigabytes) {
  const char *text = getenv("STUB_DEVICES");
  for (; text && *text; index--) {
    if (index == 0) return sscanf(text, "%63[^|]|%d|%d|%d", name, major, minor, gigabytes) == 4 ? 0 : 101;
    text = strchr(text, ';');
    if (text) text++;
  }
  return 101;
}

int cuInit(unsigned flags) { (void)flags; return number("STUB_INIT", 0); }
int cuDriverGetVersion(int *version) { *version = number("STUB_VERSION", 12040); return 0; }

int cuDeviceGetCount(int *count) {
  char name[64];
  int a, b, c;
  for (*count = 0; device(*count, name, &a, &b, &c) == 0;) (*count)++;
  return 0;
}

int cuDeviceGet(int *handle, int index) { *handle = index + 100; return 0; }

int cuDeviceGetName(char *out, int size, int handle) {
  char name[64];
  int a, b, c, answer = device(handle - 100, name, &a, &b, &c);
  snprintf(out, size, "%s", name);
  return answer;
}

int cuDeviceGetPCIBusId(char *out, int size, int handle) {
  snprintf(out, size, "0000:%02X:00.0", handle - 100 + 1 + number("STUB_FIRST", 0));
  return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int handle) {
  char name[64];
  int major, minor, gigabytes, answer = device(handle - 100, name, &major, &minor, &gigabytes);
  switch (attribute) {
    case 75: *value = major; break;
    case 76: *value = minor; break;
    case 13: *value = 1410000; break; /* kHz */
    case 36: *value = 1215000; break;
    case 37: *value = 5120; break; /* bits of the bus */
    default: *value = 80;
  }
  return answer;
}

int cuDeviceTotalMem_v2(size_t *bytes, int handle) {
  char name[64];
  int major, minor, gigabytes, answer = device(handle - 100, name, &major, &minor, &gigabytes);
  *bytes = (size_t)gigabytes << 30;
  return answer;
}

int cuDeviceCanAccessPeer(int *can, int handle, int peer) {
  const char *apart = getenv("STUB_APART");
  char pair[32];
  snprintf(pair, sizeof pair, "%d-%d", handle < peer ? handle - 100 : peer - 100, handle < peer ? peer - 100 : handle - 100);
  *can = handle >= 100 && peer >= 100 && number("STUB_PEERS", 1) && !(apart && strstr(apart, pair));
  return 0;
}

/* Contexts and memory: a context is its device's handle, memory of a device is memory of this process.
   STUB_ACTIVE: 1 if the process has a context on each of its devices.
   STUB_CORRUPT, STUB_STUCK: "0-1", pairs between which copies change a bit, or never end. STUB_FULL: an allocation of this
   many bytes or more fails. */
int cuDevicePrimaryCtxRetain(void **context, int handle) { *context = (void *)(long)handle; return 0; }
int cuDevicePrimaryCtxGetState(int handle, unsigned *flags, int *active) {
  *flags = 0;
  *active = number("STUB_ACTIVE", 0);
  return handle >= 100 ? 0 : 101;
}
int cuDevicePrimaryCtxRelease(int handle) { (void)handle; return 0; }
int cuCtxPushCurrent_v2(void *context) { (void)context; return 0; }
int cuCtxPopCurrent_v2(void **context) { (void)context; return 0; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = (size_t)30 << 30; *total = (size_t)40 << 30; return 0; }
int cuCtxSetCurrent(void *context) { (void)context; return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuCtxEnablePeerAccess(void *context, unsigned flags) { (void)context; (void)flags; return 0; }

int cuMemAlloc_v2(unsigned long long *address, size_t size) {
  if (number("STUB_FULL", 0) && size >= (size_t)number("STUB_FULL", 0)) return 2;
  *address = (unsigned long long)malloc(size);
  return 0;
}

int cuMemFree_v2(unsigned long long address) { free((void *)address); return 0; }
int cuMemAllocHost_v2(void **address, size_t size) { *address = malloc(size); return 0; }
int cuMemFreeHost(void *address) { free(address); return 0; }
int cuMemsetD8_v2(unsigned long long address, unsigned char value, size_t size) { memset((void *)address, value, size); return 0; }
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) { memcpy((void *)to, from, size); return 0; }
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) { memcpy(to, (void *)from, size); return 0; }
int cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from, size_t size) { memcpy((void *)to, (void *)from, size); return 0; }

int cuMemcpyPeer(unsigned long long to, void *there, unsigned long long from, void *here, size_t size) {
  const char *corrupt = getenv("STUB_CORRUPT"), *stuck = getenv("STUB_STUCK");
  long one = (long)here - 100, other = (long)there - 100;
  char pair[64];
  snprintf(pair, sizeof pair, "%ld-%ld", one < other ? one : other, one < other ? other : one);
  if (stuck && strstr(stuck, pair)) sleep(1000);
  memcpy((void *)to, (void *)from, size);
  if (corrupt && strstr(corrupt, pair)) ((char *)to)[size / 2] ^= 1;
  return 0;
}
