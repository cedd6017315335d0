package oom

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// messageWords are in every message; one that a hard wrap cuts in two leaves another.
var messageWords = []string{
	"out of memory", "Out of memory while", "Tried to allocate", "exceed allowed memory", "NVML_SUCCESS",
	"failed with OOM on device",
	"RESOURCE_EXHAUSTED: ", "Resource exhausted: ", "OOM when allocating", "Free memory on device", "_ERROR_OUT_OF_",
	"HIP_ERROR_OutOfMemory",
	"Allocation on device", "Allocation is out of device memory", "hipErrorOutOfMemory", "CallbackErrorOutOfMemory",
	"Invalid buffer size: ",
	"ran out of memory trying to alloc", "Out of memory error on GPU", "Out of memory alloc", "from device: hipError_t",
	"Failed to allocate memory for requested",
	"No available memory for the cache", "available KV cache memory", "be stored in KV cache", "--mem-fraction-static",
	"ResourceExhaustedError: ", "No executable batch size found", "Of the allocated memory",
	"Sum Total of in-use chunks", "PT_DEVMEM Allocation failed",
	"Cuda Runtime (out", "CUDA allocation failed", "Out of GPU memory", "enough and alloc failed",
	"allocate a memory region of",
	"Error Code 2: OutOfMemory", "Out of Memory!!!", "EL0004", "[metal::malloc]", "enough GPU video memory",
	"cuda runtime error (2", "CUDA driver error", "memory allocation failed", "while trying to alloc",
	"has a total capac", "total capacity; ",
}

// growthWords are how training programs print the GPU memory in use; a number follows.
var growthWords = []string{"gpu_mem", "max mem: ", "max_mem: ", "memory(GiB)", "memory: ", "| allocated: ",
	" MemAllocated=", "memory_allocated", " allocated ", perDevice}

const perDevice = "mem_usage:cuda"

// hitCost is what it takes to look at one watched word, beside a part of its line: thousands may stand in a row, and
// more only where every hundredth byte has one.
const hitCost = 100

// vocabulary is what every scan uses alike.
type vocabulary struct {
	finder  *wordFinder
	readers []reader
}

var sharedVocabulary = sync.OnceValue(func() vocabulary {
	words, readers := watched()
	return vocabulary{newWordFinder(words), readers}
})

// watched returns the words that a log is searched for, and who reads what stands there.
func watched() (words []string, readers []reader) {
	watch := func(word string, read reader) {
		words, readers = append(words, word), append(readers, read)
	}
	placed := func(read func(*scanner, place)) reader {
		return func(s *scanner, at int) {
			p := s.placeAt(at)
			if s.hits.pays(s.buffer().from+int64(at), hitCost+int64(p.end-p.start)/4) {
				read(s, p)
			}
		}
	}
	for _, w := range messageWords {
		watch(w, placed(readMessage))
	}
	for _, r := range signRules() {
		watch(r.word, placed(r.read))
	}
	for _, r := range exitRules() {
		watch(r.word, placed(r.read))
	}
	for _, w := range growthWords {
		watch(w, func(s *scanner, at int) { readGrowth(s, at+len(w), w) })
	}
	for _, c := range clueWords() {
		watch(c.word, c.read)
	}
	watch("Error: ", placed(readException))
	watch(bareName, placed(readBareName))
	return words, readers
}

// readGrowth notes the figure behind the word until the first message: what follows a death says nothing about its
// cause. It stands on every step's line of some logs, so it does without patterns.
func readGrowth(s *scanner, at int, word string) {
	if len(s.log.Messages) > 0 {
		return
	}
	rest := s.buf[at:]
	if word == perDevice && len(rest) > 3 && rest[0] == ':' && rest[2] == ' ' { // the index of the device
		rest = rest[3:]
	}
	v, ok := leadingFigure(rest)
	if !ok {
		return
	}
	if s.log.Growth[word] == nil {
		s.log.Growth[word] = &Series{}
	}
	s.log.Growth[word].add(v)
}

// leadingFigure reads the number at the start of rest, behind at most four quotes, colons and spaces.
func leadingFigure(rest []byte) (float64, bool) {
	rest = rest[:min(len(rest), 24)]
	for i := 0; i < 4 && len(rest) > 0 && strings.IndexByte(`'":= `, rest[0]) >= 0; i++ {
		rest = rest[1:]
	}
	digits := 0
	for digits < len(rest) && (rest[digits] == '.' || '0' <= rest[digits] && rest[digits] <= '9') {
		digits++
	}
	if digits == 0 {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(rest[:digits]), 64)
	return v, err == nil
}

// echoes are exceptions by which a launcher or a surviving rank repeats another's failure.
var echo = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`ChildFailedError|CalledProcessError|ProcessRaisedException|ProcessExitedException|BrokenPipeError|Connection\w*Error|` +
		`DistBackendError|RayTaskError|SignalException|EOFError|BrokenProcessPool|WorkerCrashedError|ActorDiedError|TerminatedWorkerError`)
})

// workerDeath is how a data loader tells that one of its processes is gone; how that ended is a sign of its own.
var workerDeath = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`Data[Ll]oader worker \(pid.*(?:killed by signal: *(?i:killed|bus)|exited unexpectedly)|Connection (?:closed|reset) by (?:remote )?peer`)
})

// readException notes the last exception that is a cause in its own right.
func readException(s *scanner, p place) {
	lead := clean(p.buf[p.start : p.at+len("Error: ")])
	if lead.string == "" || !raised(lead.string) || echo().MatchString(lead.string) {
		return
	}
	if behind := p.at + len("Error: "); judge().torch.MatchString(lead.string) && s.read <= p.start &&
		!s.messageBehind(behind) {
		m := newMessage()
		m.Form = FormCUDA
		s.take(m, p, lead, behind, max(behind, p.end))
		return
	}
	if behind := p.at + len("Error: "); cutShort(s.buf[behind:p.end]) && !s.messageBehind(behind) {
		m := newMessage()
		m.Form = FormCUDA
		s.take(m, p, lead, behind, p.end)
		return
	}
	if sign := p.sign(SignFault); !s.isMessageLine(p) && !workerDeath().MatchString(sign.Text) {
		s.log.Exception = sign
		if s.log.firstException.Line == 0 {
			s.log.firstException = sign
		}
	}
}

// bareName is how Python ends the traceback of torch's class without a text, as wrappers raise it.
const bareName = "OutOfMemoryError\n"

func readBareName(s *scanner, p place) {
	end := p.at + len(bareName) - 1
	if lead := clean(p.buf[p.start:end]); judge().torch.MatchString(lead.string) && s.read <= p.start {
		m := newMessage()
		m.Form = FormCUDA
		s.take(m, p, lead, p.start, end)
	}
}

// cutShort tells a message that was cut off inside its first words, as the excerpts of threads are.
func cutShort(line []byte) bool {
	const words, least = "CUDAoutofmemory", len("CUDAout")
	text := squeeze(line).text
	return len(text) >= least && strings.HasPrefix(words, text)
}

// messageBehind tells whether the words of a message stand in the text that starts at from, be they wrapped: those are
// read by themselves.
func (s *scanner) messageBehind(from int) bool {
	const near = 60 // squeezed bytes that a wrapper may put before them
	text := squeeze(s.buf[from:min(len(s.buf), from+headBytes)]).text
	if i := strings.Index(text, "Triedtoallocate"); i >= 0 && i < near {
		return true
	}
	for _, h := range grammar().heads {
		if at, ok := h.isIn(text); ok && at < near {
			return true
		}
	}
	return false
}

// isMessageLine tells whether the exception at p is an out-of-memory message.
func (s *scanner) isMessageLine(p place) bool {
	text := squeeze([]byte(p.segment().string)).text
	for _, h := range grammar().heads {
		if _, ok := h.isIn(text); ok {
			return true
		}
	}
	at := bytes.Index(p.buf[p.at:p.end], []byte(outOfMemory))
	p.at += max(at, 0)
	return at >= 0 && saysOutOfMemory(p)
}
