package estimate

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// cuBLAS asks PyTorch's allocator for a workspace for each (handle, stream): two chunks of 4 MiB and eight of 16 KiB,
// or 32 MiB from compute capability 9.0 on (ATen/cuda/CublasHandlePool.cpp). Backward runs in a thread of its own and
// has a second one.
const (
	smallWorkspace = 2*4096*1024 + 8*16*1024
	largeWorkspace = 32 * mib
)

// idlePythonBytes is what a Python process that has imported torch holds: measured with torch 2.15 on Linux x86-64.
const idlePythonBytes = 230 * mib

// contextClasses are the memory a CUDA process holds outside PyTorch's allocator, by compute capability and, within
// one, by the device's memory: the largest single-process figures of public out-of-memory messages, rounded up. First
// match wins.
var contextClasses = []struct {
	minCC, maxCC  float64
	maxTotalBytes int64 // 0: any
	bytes         int64
	what          string
}{
	{minCC: 9.0, maxCC: 99, maxTotalBytes: 17 * gib, bytes: 35 * gib / 100, what: "consumer GPUs of 16 GB"},
	{minCC: 9.0, maxCC: 99, bytes: 75 * gib / 100, what: "H100 and later"},
	{minCC: 7.2, maxCC: 7.6, bytes: 15 * gib / 100, what: "Turing (T4, RTX 20)"},
	{minCC: 8.6, maxCC: 8.6, maxTotalBytes: 13 * gib, bytes: 15 * gib / 100, what: "small Ampere (RTX 3060)"},
	{minCC: 8.6, maxCC: 8.9, maxTotalBytes: 23 * gib, bytes: 35 * gib / 100,
		what: "L4, A10G and consumer GPUs up to 16 GB"},
	{minCC: 0, maxCC: 99, bytes: 60 * gib / 100, what: "V100, A100, L40S, RTX 3090 and 4090"},
}

// NCCL's buffers for the first communicator on NVLink, their range, and for each further process group (A100 and H100
// measurements in pytorch and nccl threads: 0.4 to 1.3 GiB above a single process, 0.5 to 0.7 for one more group).
const (
	firstCommunicator     = 1 * gib
	firstCommunicatorLow  = 3 * gib / 10
	firstCommunicatorHigh = 15 * gib / 10
	furtherCommunicator   = 6 * gib / 10
)

// An overhead is memory that depends on the machine rather than on the model.
type overhead struct {
	context, contextLow, contextHigh int64 // outside the allocator, NCCL included
	workspace                        int64 // one cuBLAS workspace, inside the allocator
	library                          int64 // another library's own workspace, inside the allocator
}

func (s *scenario) overhead() overhead {
	hw, opt := s.in.Hardware, s.in.Options
	var o overhead
	if s.cpu() {
		switch {
		case opt.ContextBytes >= 0:
			o.context = opt.ContextBytes
		case hw.ContextBytes > 0:
			o.context = hw.ContextBytes
		default:
			o.context = idlePythonBytes
			s.notes.assume("230 MiB for the Python process itself", "measured for torch 2.15 on Linux x86-64", true)
			return overhead{context: o.context, contextLow: o.context * 8 / 10, contextHigh: o.context * 15 / 10}
		}
		o.contextLow, o.contextHigh = o.context, o.context
		return o
	}
	o.workspace = s.workspace()
	if s.megatron() {
		// Transformer Engine has a workspace of its own. Between steps, four tests of Megatron on H100 hold 6 + 12/N or
		// 18 bytes a parameter and 96 to 103 MiB: three workspaces.
		o.library = o.workspace
	}
	if opt.ContextBytes >= 0 {
		o.context = opt.ContextBytes
		o.contextLow, o.contextHigh = o.context, o.context
		return o
	}
	o.context = s.contextBytes()
	o.contextLow, o.contextHigh = o.context, o.context
	if !s.contextKnown() { // public figures of one class differ by about a quarter
		o.contextLow, o.contextHigh = o.context*3/4, o.context*5/4
	}
	s.addCommunicators(&o)
	return o
}

func (s *scenario) contextKnown() bool {
	hw := s.in.Hardware
	return hw.Kind != "" && hw.ContextBytes >= 0
}

func (s *scenario) contextBytes() int64 {
	hw := s.in.Hardware
	if s.contextKnown() {
		return hw.ContextBytes
	}
	cc := computeCapability(hw.ComputeCapability)
	for _, c := range contextClasses {
		if cc >= c.minCC && cc <= c.maxCC &&
			(c.maxTotalBytes == 0 || hw.TotalBytes > 0 && hw.TotalBytes <= c.maxTotalBytes) {
			s.notes.assume(fmt.Sprintf("a CUDA context of %d MiB", c.bytes/mib),
				"class of "+c.what+"; not measured here", true)
			return c.bytes
		}
	}
	return 0
}

// addCommunicators adds NCCL, which allocates outside PyTorch: one communicator for data parallelism and one for each
// further group.
func (s *scenario) addCommunicators(o *overhead) {
	if s.world <= 1 {
		return
	}
	groups := int64(0)
	for _, degree := range []int64{s.tp, s.pp, s.cp} {
		if degree > 1 {
			groups++
		}
	}
	if s.sharding == "fsdp-hybrid" {
		groups++
	}
	first, low, high, further := int64(firstCommunicator), int64(firstCommunicatorLow), int64(firstCommunicatorHigh),
		int64(furtherCommunicator)
	if n := s.in.Hardware.NCCLBytes; n >= 0 && s.in.Hardware.Kind != "" {
		first, low, high, further = n, n, n, n
	} else {
		text := "NCCL takes 1.0 GiB"
		if groups > 0 {
			text += fmt.Sprintf(", and 0.6 GiB for each further group of ranks (%d)", groups)
		}
		s.notes.assume(text, "typical on NVLink; counted in context, because it is outside PyTorch's allocator", true)
	}
	o.context += first + groups*further
	o.contextLow += low + groups*further
	o.contextHigh += high + groups*further
}

func (s *scenario) workspace() int64 {
	if computeCapability(s.in.Hardware.ComputeCapability) >= 9 {
		return largeWorkspace
	}
	return smallWorkspace
}

// computeCapability is 0 when it is unknown.
func computeCapability(text string) float64 {
	cc, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return 0
	}
	return cc
}

// The share of memory beyond the model states that the caching allocator reserves without handing it out: public pairs
// of max_memory_reserved and max_memory_allocated differ by 6 to 12 % of the whole; states are allocated once and
// fragment little.
const (
	fragmentationExpected = 0.05
	fragmentationHigh     = 0.12
	// Whole logits leave cache behind that nothing else fits in, because each of their copies is another large block:
	// half their peak is what brings 50 runs of Trainer at fixed length (fms-acceleration, high confidence) from 13 to
	// 6 % of the device's memory in the median; some leave a little more than all of it. Fused losses leave next to
	// nothing.
	logitsExpected = 0.5
	logitsHigh     = 1.2
	// Where every batch has another length, each new size of logits gets a new segment while the old ones stay cached:
	// reserved memory then grows by about 40 bytes a token and vocabulary entry where 12 to 14 are allocated
	// (ms-swift's benchmark, 36 rows on torch 2.1).
	unlikeLogitsHigh = 2.2
	segmentBytes     = 2 * mib // large segments are multiples of it (c10/cuda/CUDACachingAllocator.cpp)
)

// fragmentation is the expected and the highest unusable cache for a stage's components; whole is the largest that
// logits have been by then, since the cache that they leave stays.
func (s *scenario) fragmentation(c Components, whole int64) (expected, high int64) {
	if s.cpu() {
		return 0, 0
	}
	allocated := c.Allocated()
	if allocated == 0 {
		return 0, 0
	}
	moving, logits := float64(max(allocated-c.ModelStates(), 0)), float64(whole)
	if s.traits.ExpandableSegments {
		logits = 0
	}
	roundUp := func(unusable float64) int64 {
		reserved := allocated + int64(unusable)
		return ceilDiv(reserved, segmentBytes)*segmentBytes - allocated
	}
	most := logitsHigh
	if s.unlikeLengths() {
		most = unlikeLogitsHigh
	}
	return roundUp(fragmentationExpected*moving + logitsExpected*logits),
		roundUp(fragmentationHigh*moving + most*logits)
}

// unlikeLengths says that batches may differ in length: Trainer pads each to its own longest sequence unless samples
// are packed.
func (s *scenario) unlikeLengths() bool {
	return s.traits.PadsBatches && !s.job.Packing.Or(false)
}
