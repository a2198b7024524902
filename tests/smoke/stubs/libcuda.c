/* Stands in for libcuda.so.1 where there is no GPU. Tests only.
   STUB_INIT: what cuInit answers. STUB_VERSION: 12040 for CUDA 12.4. STUB_DEVICES: "name|major|minor|GB;..." */
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

int cuDeviceGetAttribute(int *value, int attribute, int handle) {
  char name[64];
  int major, minor, gigabytes, answer = device(handle - 100, name, &major, &minor, &gigabytes);
  *value = attribute == 75 ? major : attribute == 76 ? minor : 80;
  return answer;
}

int cuDeviceTotalMem_v2(size_t *bytes, int handle) {
  char name[64];
  int major, minor, gigabytes, answer = device(handle - 100, name, &major, &minor, &gigabytes);
  *bytes = (size_t)gigabytes << 30;
  return answer;
}

int cuDeviceCanAccessPeer(int *can, int handle, int peer) {
  *can = handle >= 100 && peer >= 100 && number("STUB_PEERS", 1);
  return 0;
}
