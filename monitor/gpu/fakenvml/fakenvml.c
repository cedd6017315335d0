//go:build ignore

/*
 * A stand-in for the driver's libnvidia-ml.so.1. It answers from the scenario file named in FAKE_NVML_SCENARIO (written by
 * Scenario.WriteFile) and reads the file again whenever it has been replaced, so that a test can change the machine under a running
 * program. A fault in the scenario makes a function fail, hang or crash. -DNO_<function> leaves a function out of the library, as
 * an old driver does; -DWIDE_PROCESS_INFO marks the drivers whose process list has larger entries than nvml.h promises.
 *
 * Layouts and return codes follow NVIDIA's nvml.h.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, VERSION_MISMATCH = 25, UNKNOWN = 999 };
enum { MAX_SLOTS = 64, MAX_PROCESSES = 64, MAX_FAULTS = 32, NO_DEVICE = -1 };

typedef struct { char kind[16]; unsigned pid; unsigned long long bytes; } process;
typedef struct {
	char uuid[96], name[96], bus[32];
	unsigned long long total, reserved, used;
	int major, minor, mode, parent; /* parent: slot of the GPU that a MIG device is part of, or -1 */
	process processes[MAX_PROCESSES];
	int nprocesses;
} slot;
typedef struct { char function[64], action[16]; int device, code; } fault;

static slot slots[MAX_SLOTS];
static fault faults[MAX_FAULTS];
static int nslots, nfaults, cuda;
static char driver[80];
static struct stat loaded;

typedef void *handle;
typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } process_info;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; } pci_info;

static void parse(const char *key, const char *rest) {
	slot *s = nslots > 0 ? &slots[nslots - 1] : NULL;
	if (!strcmp(key, "driver")) snprintf(driver, sizeof driver, "%s", rest);
	else if (!strcmp(key, "cuda")) cuda = atoi(rest);
	else if ((!strcmp(key, "gpu") || !strcmp(key, "mig")) && nslots < MAX_SLOTS) {
		memset(&slots[nslots], 0, sizeof slots[nslots]);
		slots[nslots].parent = -1;
		if (key[0] == 'm') slots[nslots].parent = s->parent >= 0 ? s->parent : nslots - 1;
		nslots++;
	} else if (!strcmp(key, "fault") && nfaults < MAX_FAULTS) {
		fault *f = &faults[nfaults++];
		sscanf(rest, "%63s %d %15s %d", f->function, &f->device, f->action, &f->code);
	} else if (s == NULL) return;
	else if (!strcmp(key, "uuid")) snprintf(s->uuid, sizeof s->uuid, "%s", rest);
	else if (!strcmp(key, "name")) snprintf(s->name, sizeof s->name, "%s", rest);
	else if (!strcmp(key, "bus")) snprintf(s->bus, sizeof s->bus, "%s", rest);
	else if (!strcmp(key, "memory")) sscanf(rest, "%llu %llu %llu", &s->total, &s->reserved, &s->used);
	else if (!strcmp(key, "compute")) sscanf(rest, "%d %d %d", &s->major, &s->minor, &s->mode);
	else if (!strcmp(key, "process") && s->nprocesses < MAX_PROCESSES) {
		process *p = &s->processes[s->nprocesses++];
		sscanf(rest, "%15s %u %llu", p->kind, &p->pid, &p->bytes);
	}
}

static int load(void) {
	const char *path = getenv("FAKE_NVML_SCENARIO");
	struct stat now;
	char line[512];
	FILE *in;
	if (path == NULL || stat(path, &now) != 0) {
		fprintf(stderr, "fake nvml: no scenario: FAKE_NVML_SCENARIO=%s\n", path ? path : "");
		return UNKNOWN;
	}
	if (now.st_ino == loaded.st_ino && !memcmp(&now.st_mtim, &loaded.st_mtim, sizeof now.st_mtim)) return SUCCESS;
	if ((in = fopen(path, "r")) == NULL) return UNKNOWN;
	nslots = nfaults = 0;
	while (fgets(line, sizeof line, in)) {
		char *space;
		line[strcspn(line, "\n")] = 0;
		if ((space = strchr(line, ' ')) != NULL) *space = 0;
		parse(line, space ? space + 1 : "");
	}
	fclose(in);
	loaded = now;
	return SUCCESS;
}

/* enter reads the scenario and acts out the fault of this function, if there is one. */
static int enter(const char *function, int gpu) {
	int code = load(), i;
	for (i = 0; code == SUCCESS && i < nfaults; i++) {
		fault *f = &faults[i];
		if (strcmp(f->function, function) || (f->device >= 0 && f->device != gpu)) continue;
		if (!strcmp(f->action, "crash")) {
			fprintf(stderr, "fake nvml: crash in %s\n", function);
			abort();
		}
		while (!strcmp(f->action, "hang")) pause();
		code = f->code;
	}
	return code;
}

static slot *at(handle h) { return &slots[(intptr_t)h - 1]; }

static int number(handle h) { /* the index of the GPU that h is or is part of */
	int i, n = 0, own = (int)((intptr_t)h - 1);
	if (slots[own].parent >= 0) own = slots[own].parent;
	for (i = 0; i < own; i++) n += slots[i].parent < 0;
	return n;
}

static int text(char *out, unsigned size, const char *value) {
	if (strlen(value) + 1 > size) return INSUFFICIENT_SIZE;
	strcpy(out, value);
	return SUCCESS;
}

#define ENTER(gpu) do { int code_ = enter(__func__, gpu); if (code_ != SUCCESS) return code_; } while (0)

#ifndef NO_nvmlInit_v2
int nvmlInit_v2(void) { ENTER(NO_DEVICE); return SUCCESS; }
#endif
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == 77 ? "an error of the future" : "an error"; }

int nvmlSystemGetDriverVersion(char *out, unsigned size) { ENTER(NO_DEVICE); return text(out, size, driver); }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { ENTER(NO_DEVICE); *out = cuda; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *out) {
	int i;
	ENTER(NO_DEVICE);
	for (*out = 0, i = 0; i < nslots; i++) *out += slots[i].parent < 0;
	return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *out) {
	int i;
	ENTER((int)index);
	for (i = 0; i < nslots; i++) {
		if (slots[i].parent >= 0 || index-- > 0) continue;
		*out = (handle)(intptr_t)(i + 1);
		return SUCCESS;
	}
	return INVALID_ARGUMENT;
}

int nvmlDeviceGetUUID(handle h, char *out, unsigned size) { ENTER(number(h)); return text(out, size, at(h)->uuid); }
int nvmlDeviceGetName(handle h, char *out, unsigned size) { ENTER(number(h)); return text(out, size, at(h)->name); }

int nvmlDeviceGetPciInfo_v3(handle h, pci_info *out) {
	ENTER(number(h));
	memset(out, 0, sizeof *out);
	return text(out->text, sizeof out->text, at(h)->bus);
}

int nvmlDeviceGetCudaComputeCapability(handle h, int *major, int *minor) {
	ENTER(number(h));
	*major = at(h)->major;
	*minor = at(h)->minor;
	return SUCCESS;
}

int nvmlDeviceGetComputeMode(handle h, int *mode) { ENTER(number(h)); *mode = at(h)->mode; return SUCCESS; }

static int instances(handle h) {
	int i, n = 0;
	for (i = 0; i < nslots; i++) n += slots[i].parent == (int)((intptr_t)h - 1);
	return n;
}

int nvmlDeviceGetMigMode(handle h, unsigned *current, unsigned *pending) {
	ENTER(number(h));
	*current = *pending = instances(h) > 0;
	return *current ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetMaxMigDeviceCount(handle h, unsigned *out) { (void)h; *out = 7; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(handle h, unsigned index, handle *out) {
	int i;
	ENTER(number(h));
	for (i = 0; i < nslots; i++) {
		if (slots[i].parent != (int)((intptr_t)h - 1) || index-- > 0) continue;
		*out = (handle)(intptr_t)(i + 1);
		return SUCCESS;
	}
	return NOT_FOUND;
}

int nvmlDeviceGetMemoryInfo(handle h, memory_v1 *out) { /* version 1 counts the driver's reserve as used */
	slot *s = at(h);
	ENTER(number(h));
	out->total = s->total;
	out->used = s->used + s->reserved;
	out->free = s->total - out->used;
	return SUCCESS;
}

#ifndef NO_nvmlDeviceGetMemoryInfo_v2
int nvmlDeviceGetMemoryInfo_v2(handle h, memory_v2 *out) {
	slot *s = at(h);
	ENTER(number(h));
	if (out->version != (sizeof *out | 2u << 24)) return VERSION_MISMATCH;
	out->total = s->total;
	out->reserved = s->reserved;
	out->used = s->used;
	out->free = s->total - s->used - s->reserved;
	return SUCCESS;
}
#endif

static int list(slot *s, const char *kind, unsigned *count, process_info *out) {
	unsigned room = *count;
	int i;
	for (*count = 0, i = 0; i < s->nprocesses; i++) {
		process *p = &s->processes[i];
		if (strcmp(p->kind, kind)) continue;
		if (*count < room) out[*count] = (process_info){p->pid, p->bytes, ~0u, ~0u};
		++*count;
	}
	return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#ifndef NO_nvmlDeviceGetComputeRunningProcesses_v3
int nvmlDeviceGetComputeRunningProcesses_v3(handle h, unsigned *count, process_info *out) {
	ENTER(number(h));
	return list(at(h), "compute", count, out);
}
#endif
int nvmlDeviceGetGraphicsRunningProcesses_v3(handle h, unsigned *count, process_info *out) {
	ENTER(number(h));
	return list(at(h), "graphics", count, out);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(handle h, unsigned *count, process_info *out) {
	ENTER(number(h));
	return list(at(h), "mps", count, out);
}

#ifdef WIDE_PROCESS_INFO
int nvmlDeviceGetConfComputeMemSizeInfo(void) { return NOT_SUPPORTED; }
#endif
