package oom

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Form is a family of out-of-memory messages: which program, and which part of it, speaks.
type Form string

// The families.
const (
	FormCUDA    Form = "cuda"         // the caching allocator, with sizes unless cut off
	FormTHC     Form = "cuda-runtime" // torch before 1.0, no sizes
	FormAPI     Form = "cuda-api"     // a CUDA call outside the allocator: context, stream, event
	FormDriver  Form = "cuda-driver"  // a virtual-memory call of expandable segments
	FormAsync   Form = "cuda-async"   // cudaMallocAsync
	FormAssert  Form = "nvml-assert"  // the report of an OOM that failed itself
	FormWarning Form = "cuda-warning" // one failed cudaMalloc; a retry may have succeeded
	FormServing Form = "vllm"         // vLLM's check at start
	FormCache   Form = "kv-cache"     // an inference engine has no room for its cache of keys and values
	FormHIP     Form = "hip"
	FormXPU     Form = "xpu"
	FormMPS     Form = "mps"
	FormXLA     Form = "jax-tf"
	formNCCL    Form = "nccl" // becomes a sign, not a message
)

// messageBytes is how much text from a message's first word on is read: a hundred process entries are 6 KB.
const messageBytes = 16 << 10

// leadBytes is how far a message's first word may stand before the watched word, across a hard wrap.
const leadBytes = 200

// proof is what makes the words of a head a message and not a sentence about messages.
type proof int

const (
	asException proof = iota // sizes behind it, or an exception's name before it and nothing but punctuation behind it
	withSize                 // sizes behind it
	// the request and the size of the card behind it, or torch's name of the exception before it
	withCard
	withShares // what is allocated and what is reserved behind it
	byItself   // nobody writes this but the program
)

// phraseBytes is more than the longest phrase (the hint with its link) has, squeezed.
const phraseBytes = 400

// headBytes is how much of the text behind a watched word a head may take: the longest holds a path.
const headBytes = 400

// head is how a message begins, in squeezed text.
type head struct {
	form    Form
	pattern *regexp.Regexp
	needs   proof
	texts   []string // one stands in every match: most places that are looked at hold the text of no head or of one
}

// isIn tells whether a head stands in text, and where first.
func (h head) isIn(text string) (at int, ok bool) {
	if !holdsAny(text, h.texts) {
		return 0, false
	}
	span := h.pattern.FindStringIndex(text)
	if span == nil {
		return 0, false
	}
	return span[0], true
}

// phrase is one part of a message: sizes are its captures, in pairs of value and unit.
type phrase struct {
	pattern *regexp.Regexp
	take    func(m *Message, sizes []int64, words []string)
}

type messageGrammar struct {
	heads   []head
	phrases []phrase
}

var grammar = sync.OnceValue(func() messageGrammar {
	return messageGrammar{heads: messageHeads(), phrases: messagePhrases()}
})

func messageHeads() []head {
	h := func(f Form, needs proof, pattern string) head {
		return head{f, regexp.MustCompile(pattern), needs, textsOf(pattern)}
	}
	return []head{
		h(FormHIP, asException, `HIPoutofmemory`),
		h(FormXPU, asException, `XPUoutofmemory`),
		h(FormXPU, withSize, `NOTallocatememoryblockwithsizelargerthan4GB!`),
		h(FormXPU, asException, `Allocationisoutofdevicememory(?:oncurrentplatform)?`),
		h(FormXPU, byItself, `(?:UR_RESULT|PI)_ERROR_OUT_OF_(?:DEVICE_MEMORY|HOST_MEMORY|RESOURCES)`),
		h(FormMPS, byItself, `CallbackErrorOutOfMemory`),
		h(FormMPS, byItself, `Invalidbuffersize:[\d.]+[KMGT]iB`),
		h(FormMPS, asException, `MPSbackendoutofmemory`),
		h(FormMPS, byItself, `\[metal::malloc\]Attemptingtoallocate\d+bytes`),     // MLX
		h(FormXPU, byItself, `\d+bytes\.ThereisnotenoughGPUvideomemoryavailable`), // DirectML
		h(FormCUDA, asException, `(?:CUDA|NPU|MUSA|MLU|HPU)outofmemory`),
		h(FormCUDA, byItself, `MODULE:PT_DEVMEMAllocationfailed`), // Habana
		// accelerate: batches were halved at each shortage until none was left
		h(FormCUDA, byItself, `Noexecutablebatchsizefound,reachedzero`),
		h(FormTHC, byItself, `cudaruntimeerror\(2\):outofmemory`),
		h(FormTHC, byItself, `THCudaCheckFAILfile=[^ ]{1,200}?error=2:outofmemory`),
		h(FormHIP, asException, `HIPerror:(?:outofmemory|hipErrorOutOfMemory)`),
		h(FormAPI, asException, `CUDAerror:outofmemory`),
		h(FormAPI, byItself, `Error:?outofmemoryatline\d+infile`), // bitsandbytes
		h(FormAPI, byItself, `CUDAError:outofmemory/`),            // bitsandbytes, with the file behind it
		h(FormAPI, byItself, `CUDAallocationfailed`),              // DALI
		h(FormAPI, byItself, `code:2,reason:outofmemory`),         // dlib
		h(FormAPI, byItself, `\(-217:GpuAPIcall\)outofmemory`),    // OpenCV
		h(FormAPI, byItself, `TritonError\[CUDA\]:outofmemory`),
		h(FormAPI, byItself, `error==cudaSuccess\.2vs0\..{1,160}?:outofmemory`), // Caffe2
		h(FormAPI, byItself, `cudaErrorMemoryAllocation:?outofmemory`),          // RAPIDS, thrust
		h(FormAPI, byItself, `CudaRuntime\(outofmemory\)`),                      // TensorRT
		h(FormAPI, byItself, `CUDAfailure2:outofmemory`),                        // ONNX Runtime's calls
		h(FormAPI, byItself, `cudaErrorCudartUnloading:CUDA:outofmemory`),       // DGL
		h(FormAPI, byItself, `CUDAerror2at[^:]{1,100}:\d+:outofmemory`),         // older llama.cpp
		h(FormAPI, byItself, `cudaMallocfailed:outofmemory`),                    // llama.cpp
		h(FormAPI, byItself, `Outofmemoryallocating[\d,]+bytes`),                // CuPy
		h(FormAPI, byItself, `outofmemorytoallocate\d+bytes`),                   // CuPy up to 6
		h(FormAPI, withSize, `OutofGPUmemory`),                                  // CUDA.jl
		h(FormAPI, byItself, `memoryisntenoughandallocfailed`),                  // MindSpore
		h(FormAPI, byItself, `OutofMemory!!!Requestmemorysize`),
		h(FormAPI, byItself, `EL0004\)?:(?:\[PID:\d+\][\d:.-]+)?Failedtoallocatememory`), // Ascend
		h(FormAPI, byItself, `Memoryallocationfailedoutofmemory`),                        // MXNet 2
		h(FormAPI, byItself, `Failedtoallocateamemoryregionof\d+bytes`),                  // Kaldi
		h(FormAPI, byItself, `ErrorCode2:OutOfMemory`),                                   // TensorRT
		h(FormAPI, byItself, `Failedtoallocatememoryforrequestedbufferofsize\d+`),        // ONNX Runtime
		// Numba, cuda-python, a library's call of the driver
		h(FormAPI, byItself, `CUDA_ERROR_OUT_OF_MEMORY`),
		h(FormDriver, asException, `CUDAdrivererror:outofmemory`),
		h(FormAsync, asException, `Allocationondevice(\d*)(?:wouldexceedallowedmemory\.?(?:\(outofmemory\))?)?`),
		h(formNCCL, byItself, `(?:Cuda|HIP)failure:?2?outofmemory`),
		h(FormXLA, byItself, `CUDA_ERROR_OUT_OF_MEMORY:?outofmemory`),
		h(FormXLA, byItself, `(?:RESOURCE_EXHAUSTED|Resourceexhausted):(?:Outofmemory|Failedtoallocate|Attemptingto|Errorallocatingdevicebuffer|OOM|Ranoutofmemory|XLA:TPUcompilepermanenterror)`),
		h(FormXLA, byItself, `fromdevice:(?:HIP_ERROR_OutOfMemory|hipError_t\(\d+\))`),
		h(FormXLA, withSize, `Allocator(?:\(\w{1,40}\))?ranoutofmemory`),
		h(FormXLA, withSize, `OutofmemoryerroronGPU(\d+)`), // Paddle
		h(FormXLA, byItself, `OOMwhenallocatingtensor`),
		h(FormXLA, byItself, `ResourceExhaustedError:(?:\{\{[^}]{1,200}\}\})?(?:[Ff]ailedtoallocate(?:memory)?|Outofmemory)`),
		h(FormXLA, byItself, `SumTotalofin-usechunks:`), // what TensorFlow's allocator dumps when it found nothing
		h(FormXLA, withSize, `Errorallocating`),
		h(FormAssert, byItself, `(?:NVML_SUCCESS==.{1,60}?|==NVML_SUCCESS)INTERNALASSERTFAILEDat.{0,300}?CUDACachingAllocator`),
		h(FormWarning, withSize, `memoryallocationfailedwithOOMondevice`),
		h(FormServing, withSize, `Freememoryondevice`),
		h(FormCache, byItself, `Noavailablememoryforthecacheblocks`),
		h(FormCache, byItself, `KVcacheisneeded,whichislargerthantheavailableKVcachememory`),
		h(FormCache, byItself, `themaximumnumberoftokensthatcanbestoredinKVcache`),
		h(FormCache, byItself, `Notenoughmemory\.Pleasetrytoincrease--mem-fraction-static`), // SGLang
	}
}

// messagePhrases is the grammar of all generations at once: after its head a message is a row of these phrases. Where
// each comes from is in the table of generations of TestGenerations.
func messagePhrases() []phrase {
	const S = sizePattern
	set := func(field func(*Message) *int64) func(*Message, []int64, []string) {
		return func(m *Message, sizes []int64, _ []string) { *field(m) = sizes[0] }
	}
	tried := func(m *Message, sizes []int64, _ []string) { m.TriedBytes, m.BogusSize = sizes[0], sizes[0] == Unknown }
	p := func(pattern string, take func(*Message, []int64, []string)) phrase {
		return phrase{regexp.MustCompile(`^[.,;:()\-]*` + pattern), take}
	}
	return []phrase{
		p(`Triedtoallocate`+S, tried),
		p(`Triedtoallocatemorethan1EBmemory`, func(m *Message, _ []int64, _ []string) { m.BogusSize = true }),
		p(`onprivatepool`, func(*Message, []int64, []string) {}),
		p(`[GNM][PL]U(\d{0,4});`+S+`totalcapacity`, takeDevice("")),
		p(`[GNM][PL]U(\d{0,4})hasatotalcapactyof`+S, takeDevice("G3")),
		p(`[GNM][PL]U(\d{0,4})hasatotalcapacityof`+S, takeDevice("G4")),
		p(`ofwhich`+S+`isfree`, set((*Message).free)),
		p(S+`alreadyallocated`, set((*Message).allocated)),
		p(S+`free?`, set((*Message).free)), // "fre": cut there
		p(S+`allowed`, set((*Message).allowed)),
		p(S+`cached`, func(m *Message, sizes []int64, _ []string) {
			m.ReservedUnallocatedBytes, m.Generation = sizes[0], "G1" // cached did not include allocated then
		}),
		p(S+`reservedintotalbyPyTorch`, func(m *Message, sizes []int64, _ []string) {
			m.ReservedBytes, m.Generation = sizes[0], "G2"
		}),
		p(`Process(\d+)has`+S+`memoryinuse`, func(m *Message, sizes []int64, words []string) {
			pid, _ := strconv.Atoi(words[0])
			m.OtherProcesses = append(m.OtherProcesses, OtherProcessUse{PID: pid, Bytes: unlessZero(sizes[0])})
		}),
		p(`(?:Includingnon-PyTorchmemory,thisprocess|Process)has`+S+`memoryinuse`,
			func(m *Message, sizes []int64, _ []string) {
				m.ProcessBytes, m.ownPartSeen = unlessZero(sizes[0]), true
			}),
		// dots may stand for the part before it
		p(`(?:Oftheallocatedmemory)?`+S+`isallocatedbyPyTorch`, set((*Message).allocated)),
		p(`with`+S+`allocatedinprivatepools\(e\.g\.,(?:CUDA|HIP)Graphs\)`, func(m *Message, sizes []int64, _ []string) {
			m.PrivatePoolBytes, m.Generation = sizes[0], "G5"
		}),
		p(`and`+S+`isreservedbyPyTorchbutunallocated`, set((*Message).unallocated)),
		p(`Ifreserved(?:butunallocated)?memoryis(?:>>allocatedmemory|large)trysetting([^ ]{0,200}?)toavoidfragmentation`, takeHint),
		p(`SeedocumentationforMemoryManagement(?:and[A-Z_]+)?(\(https?:[^)]*\))?`,
			func(m *Message, _ []int64, words []string) {
				if strings.Contains(words[0], "docs.pytorch.org") && (m.Generation == "G4" || m.Generation == "G5") {
					m.Generation += "d"
				}
			}),
		// cudaMallocAsync, one item a line
		p(`Currentlyallocated:`+S, set((*Message).allocated)),
		p(`Requested:`+S, tried),
		p(`Devicelimit:`+S, set((*Message).total)),
		p(`Free\(accordingtoCUDA\):`+S, set((*Message).free)),
		p(`PyTorchlimit\(setbyuser-suppliedmemoryfraction\):`+S, set((*Message).allowed)),
		// MPS, XLA, Theano, vLLM, the warning of 2.13
		p(`MPSallocated:`+S+`,otherallocations:`+S+`,maxallowed:`+S, func(m *Message, sizes []int64, _ []string) {
			m.AllocatedBytes, m.AllowedBytes = sizes[0], sizes[2]
		}),
		p(`(?:whiletrying|trying|tried|Attempting)toallocate`+S, tried),
		p(`Attemptingtoallocate([0-9.]+)([KMGT])\.Thatwasnotpossible\.Thereare([0-9.]+)([KMGT])free`, takeTPU),
		p(`Cannotallocate`+S+`memoryonGPU(\d+),`+S+`memoryhasbeenallocatedandavailablememoryisonly`+S,
			func(m *Message, sizes []int64, words []string) {
				m.TriedBytes, m.AllocatedBytes, m.FreeBytes, m.GPU = sizes[0], sizes[1], sizes[2], firstInt(words[2:3])
			}),
		p(S+`ofdevicememory\(outofmemory\)`, tried),
		p(`(?:cuda:)?(\d{0,3})\(([\d.]+)/([\d.]+)(GiB)\)onstartupislessthandesiredGPUmemoryutilization\([\d.]+,`+S,
			func(m *Message, sizes []int64, words []string) {
				m.GPU, m.FreeBytes = firstInt(words[:1]), parseSize(words[1], "GiB")
				m.TotalBytes, m.TriedBytes = sizes[0], sizes[1]
			}),
		p(`Driverreport(\d+)bytesfreeand(\d+)bytestotal`, func(m *Message, _ []int64, words []string) {
			m.FreeBytes, m.TotalBytes = parseSize(words[0], "bytes"), parseSize(words[1], "bytes")
		}),
		p(`(\d+)whiletryingtoallocate`+S+`\(free:(\d+)(?:bytes)?,total:(\d+)`,
			func(m *Message, sizes []int64, words []string) {
				tried(m, sizes, nil)
				m.GPU, m.Generation = firstInt(words[:1]), "G7"
				m.FreeBytes, m.TotalBytes = parseSize(words[3], "bytes"), parseSize(words[4], "bytes")
			}),
	}
}

func (m *Message) free() *int64        { return &m.FreeBytes }
func (m *Message) total() *int64       { return &m.TotalBytes }
func (m *Message) allocated() *int64   { return &m.AllocatedBytes }
func (m *Message) unallocated() *int64 { return &m.ReservedUnallocatedBytes }
func (m *Message) allowed() *int64     { return &m.AllowedBytes }

// unlessZero: NVML answers 0 bytes for a process under MIG and vGPU; that is "not known", not "nothing".
func unlessZero(b int64) int64 {
	if b == 0 {
		return Unknown
	}
	return b
}

func takeDevice(generation string) func(*Message, []int64, []string) {
	return func(m *Message, sizes []int64, words []string) {
		m.GPU, m.TotalBytes, m.Generation = firstInt(words[:1]), sizes[0], generation
	}
}

// takeTPU: XLA prints its units without the B.
func takeTPU(m *Message, _ []int64, words []string) {
	m.TriedBytes, m.FreeBytes = parseSize(words[0], words[1]), parseSize(words[2], words[3])
}

func takeHint(m *Message, _ []int64, words []string) {
	m.ExpandableHint = strings.Contains(words[0], "expandable_segments")
	switch {
	case m.Generation == "G2":
		m.Generation = "G2h"
	case strings.HasPrefix(words[0], "PYTORCH_ALLOC_CONF"):
		m.Generation = "G6"
	}
}

// UnknownMessage is a message of which nothing is known yet.
func UnknownMessage() Message { return newMessage() }

func newMessage() Message {
	return Message{
		GPU: -1, Rank: -1, TriedBytes: Unknown, TotalBytes: Unknown, FreeBytes: Unknown, AllocatedBytes: Unknown,
		ReservedBytes:            Unknown,
		ReservedUnallocatedBytes: Unknown, PrivatePoolBytes: Unknown, AllowedBytes: Unknown, ProcessBytes: Unknown,
	}
}

// parseMessage reads the phrases of one message from squeezed text that starts behind its head, and returns how many
// bytes they took.
func parseMessage(m *Message, s string) int {
	read := 0
	for range 4096 { // every phrase takes at least one byte; a device has at most some hundred processes
		taken := false
		for _, p := range grammar().phrases {
			found := p.pattern.FindStringSubmatch(s[read:min(len(s), read+phraseBytes)])
			if found == nil {
				continue
			}
			sizes, words := captures(found[1:])
			p.take(m, sizes, words)
			read += len(found[0])
			taken = true
			break
		}
		if !taken {
			break
		}
	}
	return read
}

// captures splits what a phrase captured into words and sizes: a number followed by its unit is a size.
func captures(found []string) (sizes []int64, words []string) {
	for i := range found {
		if i+1 < len(found) && found[i] != "" && isUnit(found[i+1]) {
			sizes = append(sizes, parseSize(found[i], found[i+1]))
		}
		words = append(words, found[i])
	}
	return sizes, words
}

func isUnit(s string) bool {
	return s == "bytes" || s == "B" ||
		(len(s) >= 2 && len(s) <= 3 && strings.HasSuffix(s, "B") && strings.ContainsRune("KMGT", rune(s[0])))
}

// complete derives what the printed numbers imply: reserved from its parts, and which process of the list is this one.
func (m *Message) complete() {
	switch {
	case m.AllocatedBytes < 0:
	case m.ReservedBytes < 0 && m.ReservedUnallocatedBytes >= 0:
		m.ReservedBytes = m.AllocatedBytes + m.ReservedUnallocatedBytes
	case m.ReservedUnallocatedBytes < 0 && m.ReservedBytes >= m.AllocatedBytes:
		m.ReservedUnallocatedBytes = m.ReservedBytes - m.AllocatedBytes
	}
	m.takeOwnProcess()
}

// takeOwnProcess: inside a container NVML lists this process under its host PID, as if it were another one, and the
// part on "this process" is missing. The entry that holds at least what PyTorch reserved, and least of those, is this
// process.
func (m *Message) takeOwnProcess() {
	if m.ProcessBytes != Unknown || m.ownPartSeen || m.ReservedBytes < 0 {
		return
	}
	own := -1
	for i, o := range m.OtherProcesses {
		if o.Bytes >= m.ReservedBytes && (own < 0 || o.Bytes < m.OtherProcesses[own].Bytes) {
			own = i
		}
	}
	if own < 0 {
		return
	}
	m.ProcessBytes = m.OtherProcesses[own].Bytes
	m.OwnPID = m.OtherProcesses[own].PID
	m.OtherProcesses = append(append([]OtherProcessUse(nil), m.OtherProcesses[:own]...), m.OtherProcesses[own+1:]...)
}

// sized tells whether the message gave any number.
func (m *Message) sized() bool {
	return m.TriedBytes >= 0 || m.TotalBytes >= 0 || m.FreeBytes >= 0 || m.AllocatedBytes >= 0 || m.BogusSize
}

// sameNumbers tells whether two messages are one that was printed twice.
func (m *Message) sameNumbers(o Message) bool {
	return m.sized() && m.Form == o.Form && m.TriedBytes == o.TriedBytes && m.TotalBytes == o.TotalBytes &&
		m.FreeBytes == o.FreeBytes &&
		m.AllocatedBytes == o.AllocatedBytes && m.ReservedBytes == o.ReservedBytes && m.GPU == o.GPU &&
		m.BogusSize == o.BogusSize
}
