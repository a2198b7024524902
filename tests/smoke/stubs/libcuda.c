/* Stands in for libcuda.so.1 where there is no GPU. Tests only.
   STUB_INIT: what cuInit answers. STUB_VERSION: 12040 for CUDA 12.4. STUB_DEVICES: "name|major|minor|GB;..."
   STUB_PEERS: 0 for no peer access at all. STUB_APART: "0-2,1-3", pairs without it.
   STUB_FIRST: the PCI bus of the first device, less one: CUDA_VISIBLE_DEVICES leaves some out, and this library does not read it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
