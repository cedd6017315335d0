package oom

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
)

// readMessage takes the message around a watched word, if there is one.
func readMessage(s *scanner, p place) {
	from := max(p.at-leadBytes, s.read, 0)
	// most hits of the shorter words are no messages: the long way only with a head
	sq := squeeze(p.buf[from:min(len(p.buf), p.at+headBytes)])
	h, span := findHead(sq, p.at-from)
	if span == nil {
		readOther(s, p)
		return
	}
	headAt := from + int(sq.at[span[0]])
	if headAt < p.start { // the head stands before a hard wrap
		back := p
		back.at = headAt
		p = s.placeBefore(back)
	}
	lead := clean(p.buf[p.start:max(p.start, headAt)])
	if speaks(lead.string) {
		return
	}
	if h.form == formNCCL {
		s.read = from + int(sq.at[span[1]-1]) + 1
		s.log.addSign(p.sign(SignNCCL))
		return
	}
	m := newMessage()
	m.Form = h.form
	if len(span) > 2 && span[2] >= 0 {
		m.GPU = firstInt([]string{sq.text[span[2]:span[3]]})
	}
	sq, end := s.parse(&m, from, p.at, span[1])
	last := from + int(sq.at[max(end, 1)-1]) + 1
	if !isMessage(h, m, lead, p.buf[last:min(len(p.buf), last+behindHead)]) {
		return
	}
	if h.needs == withShares && s.continues(m, headAt) {
		s.read = last
		return
	}
	s.take(m, p, lead, headAt, last)
}

// readOther takes the report of a library that no head knows: an error that names CUDA or the GPU before the driver's
// words for error 2. Each library puts them differently, as in "CUDA failed with error out of memory" (CTranslate2),
// "cudaMalloc error out of memory [2]" (Faiss), "Check failed: error == cudaSuccess (2 vs. 0) out of memory" (Caffe).
func readOther(s *scanner, p place) {
	if !saysOutOfMemory(p) {
		return
	}
	lead := p.lead()
	m := newMessage()
	m.Form = FormAPI
	s.take(m, p, lead, max(p.start, p.at-len(lead.string)-len(" ")), p.at+len(outOfMemory))
}

const outOfMemory = "out of memory"

// saysOutOfMemory tells whether the watched words end such a report.
func saysOutOfMemory(p place) bool {
	j, lead := judge(), p.lead().string
	lead = strings.ReplaceAll(lead, "ould not ", "") // could not allocate: no talk
	return bytes.HasPrefix(p.buf[p.at:p.end], []byte(outOfMemory)) && j.library.MatchString(lead) &&
		j.fails.MatchString(lead) && !j.talk.MatchString(lead) &&
		!j.code.MatchString(lead) && !j.quoted.Match(p.buf[p.at+len(outOfMemory):p.end])
}

// nearBytes is how much text that is no part of a message may stand inside it.
const nearBytes = 200

// continues hands the shares at the end of a message to the message before them, from which a phrase that is not known
// had cut them off.
func (s *scanner) continues(m Message, at int) bool {
	n := len(s.log.Messages)
	if n == 0 || s.read == 0 || at-s.read > nearBytes {
		return false
	}
	old := &s.log.Messages[n-1]
	if old.TriedBytes < 0 || old.AllocatedBytes >= 0 {
		return false
	}
	old.AllocatedBytes, old.ReservedUnallocatedBytes, old.PrivatePoolBytes = m.AllocatedBytes,
		m.ReservedUnallocatedBytes, m.PrivatePoolBytes
	old.complete()
	return true
}

// take keeps a message whose text is buf[headAt:last], behind lead.
func (s *scanner) take(m Message, p place, lead text, headAt, last int) {
	s.read = last
	m.complete()
	m.Line, m.lastLine, m.Rank = p.line, p.line, lead.rank
	m.when, m.zone = timeIn(string(p.buf[p.start:max(p.start, headAt)]))
	m.Logged = lead.logged && !raised(lead.string)
	m.Text = excerpt(exceptionName(lead.string) + " " + string(p.buf[headAt:last]))
	m.Generation = generation(m, lead.string)
	s.message = lastMessage{line: m.Line, printed: m.Logged, step: stepBefore(p, m.Logged),
		end: s.log.Bytes - int64(len(s.buf)-last)}
	if s.log.repeats(m) {
		return
	}
	m.Traceback = tracebackAround(p, last, m.Rank)
	if m.Rank < 0 {
		m.Rank = m.Traceback.rank
	}
	if len(s.log.Messages) == 0 {
		s.log.LastStep = lastStep(p)
	}
	s.log.addMessage(m)
}

// behindHead is how much text behind a message is looked at to tell it from a sentence.
const behindHead = 160

// parse reads the phrases of a message that starts in buf[from:] and whose head ends at squeezed byte head. It squeezes
// no more text than the message has: most are shorter than 1 KB, one with a long list of processes is not.
func (s *scanner) parse(m *Message, from, at, head int) (sq squeezed, end int) {
	empty := *m
	for reach := 1 << 10; ; reach *= 4 {
		sq = squeeze(s.buf[from:min(len(s.buf), at+reach)])
		*m = empty
		end = head + parseMessage(m, sq.text[head:])
		if reach >= messageBytes || len(sq.text)-end > phraseBytes ||
			!s.looks.pays(s.buffer().from+int64(at), int64(reach)) {
			return sq, end
		}
	}
}

// stepReach is how many lines above a message a step counter counts as the last step.
const stepReach = 40

var step = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b(\d{4,9})(?:/\d{4,9}\b|batch)`) })

// lastStep returns the last step of at least 1000 that a progress line above the message names, 0 none.
func lastStep(p place) int {
	read := 0
	for l := range p.behind() {
		if m := step().FindStringSubmatch(l.string); m != nil {
			return max(0, firstInt(m[1:]))
		}
		if read++; read == stepReach {
			break
		}
	}
	return 0
}

// placeBefore finds the line of an earlier offset.
func (s *scanner) placeBefore(p place) place {
	moved := s.placeAt(p.at)
	moved.line = p.line - strings.Count(string(p.buf[p.at:p.start]), "\n")
	return moved
}

// findHead returns the first head that covers or follows the watched word, or the last one before it.
func findHead(sq squeezed, word int) (head, []int) {
	var best head
	var span []int
	text := sq.text[:min(len(sq.text), leadBytes+600)]
	for _, h := range grammar().heads {
		if !holdsAny(text, h.texts) {
			continue
		}
		for _, at := range h.pattern.FindAllStringSubmatchIndex(text, 4) {
			if int(sq.at[at[0]]) > word { // begins behind the word: it will be found by its own
				break
			}
			if span == nil || at[0] > span[0] || at[0] == span[0] && at[1] > span[1] {
				best, span = h, at
			}
		}
	}
	if span == nil {
		return headless(sq, word)
	}
	return best, span
}

// headless finds a message whose first words were cut off or are not known: what is left begins with the request, or
// with what is allocated.
func headless(sq squeezed, word int) (head, []int) {
	for _, start := range []struct {
		text  string
		needs proof
	}{{"Triedtoallocate", withCard}, {"Oftheallocatedmemory", withShares}} {
		if i := strings.Index(sq.text, start.text); i >= 0 && int(sq.at[i]) <= word {
			return head{form: FormCUDA, needs: start.needs}, []int{i, i}
		}
	}
	return head{}, nil
}

// judgement holds the patterns that tell a message from talk about messages.
type judgement struct{ exception, torch, failed, talk, quote, code, library, fails, quoted *regexp.Regexp }

var judge = sync.OnceValue(func() judgement {
	return judgement{
		// nothing but the name of an exception, as Python prints it
		exception: regexp.MustCompile(`^(?:[\w.]+\.)?(\w*(?:Error|Exception|Failure|error)):?\s*(?:['"(\[]*)$`),
		// torch's own class for a shortage of device memory (torch/cuda/__init__.py), whatever text a wrapper gave it
		torch:  regexp.MustCompile(`^torch\.(?:cuda\.)?OutOfMemoryError:?\s*$`),
		failed: regexp.MustCompile(`(?i)(?:error|exception|failed|failure|crashed|caught|oom)[\w.]*[\])]?\s*[:\-(]*\s*['"]?$`),
		talk: regexp.MustCompile(`(?i)^\s*(?:#|//|--|\*\s)|\b(?:if|avoid|avoids|prevent|prevents|may|might|could|can|when|whenever|unless|fix|to handle|case|possible|` +
			`help|e\.g\.|such as|like|should|would|until|without|example|errors? like|simulate)\b`),
		// what stands before a message with numbers that somebody quotes
		quote:   regexp.MustCompile(`(?i)^\s*(?:#|//|--\s)|\b(?:e\.g\.|such as|for example|errors? like|looks? like|if you (?:see|get|hit))`),
		library: regexp.MustCompile(`(?i:\bcuda|\bgpu\b|\bvram\b)|\bcu[A-Z]\w+`),
		// what may stand between the word for an error, or the call, and the driver's words for it
		fails:  regexp.MustCompile(`(?i)(?:(?:error|exception|fail(?:ed|ure)?)(?: in [\w:]+)?|\bcuda\w+(?:\(.{0,200}\))?|cudaSuccess \(2 vs\. 0\)|Error: \[CUDA\])[^a-z]{0,20}$`),
		quoted: regexp.MustCompile(`^["'\x60]\s*[,)\]]`), // an element of a list in code
		code: regexp.MustCompile(`\b(?:raise|print|assert|except|return|logger\.\w+|logging\.\w+|warnings?\.warn)\b[^:]*\(?\s*[fr]?['"]?$|\bin str\(|^if\b|^elif\b|` +
			// printed settings, samples of the data set
			`^(?:Namespace|\w*Arguments|\w*Config)\(|<\|\w+\|>|['"](?:instruction|prompt|question|text|content|input|output|completion)['"]:`),
	}
})

// raised tells whether the text before a message is the name of an exception and nothing else.
func raised(lead string) bool { return lead == "" || judge().exception.MatchString(lead) }

func exceptionName(lead string) string {
	if m := judge().exception.FindStringSubmatch(lead); m != nil {
		return lead
	}
	return ""
}

// speaks tells a comment, a line of code or a quotation by what stands before the head.
func speaks(lead string) bool {
	j := judge()
	return j.code.MatchString(lead) || !raised(lead) && j.quote.MatchString(lead)
}

// isMessage tells a message from a comment, a line of code, a help text or a remark about such messages.
func isMessage(h head, m Message, before text, behind []byte) bool {
	j, lead := judge(), before.string
	switch {
	case h.form == FormXLA && notOfDevice().Match(behind):
		return false
	case h.needs == asException && !m.sized() && !raised(lead) && j.talk.MatchString(lead):
		return false
	case h.needs == withCard:
		return m.TriedBytes >= 0 && (m.TotalBytes >= 0 || j.torch.MatchString(lead))
	case h.needs == withShares:
		return m.AllocatedBytes >= 0 && m.ReservedUnallocatedBytes >= 0
	case h.needs == byItself || m.sized():
		return true
	case h.needs == withSize:
		return false
	case raised(lead):
		return endsSentence(behind, lead != "")
	}
	return (j.failed.MatchString(lead) || before.failed) && endsSentence(behind, true)
}

// endsSentence tells whether nothing that people would write follows the head; after an exception's name a full stop
// may be followed by anything.
func endsSentence(behind []byte, named bool) bool {
	line, _, _ := strings.Cut(string(behind), "\n")
	line = strings.TrimLeft(line, " \t")
	if line == "" || strings.ContainsRune("\r'\"*`)]\\!", rune(line[0])) {
		return true
	}
	// PyTorch's own next lines, joined
	if strings.HasPrefix(line, "Search for `cuda") || strings.HasPrefix(line, "CUDA kernel errors") {
		return true
	}
	if line[0] != '.' {
		return false
	}
	line = strings.Trim(line, ".*'\"`)] \t\r")
	return named || line == "" || strings.HasPrefix(line, "Tried") || strings.HasPrefix(line, `\n`)
}

// notOfDevice: TensorFlow tries again with less; the memory of a kernel on the chip was too small.
var notOfDevice = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`this is not a failure|in memory space [vs]mem while allocating on stack`)
})

// generation names what the phrases alone could not: class names and forms without phrases.
func generation(m Message, lead string) string {
	named := strings.Contains(lead, "OutOfMemoryError")
	byForm := map[Form]string{FormTHC: "G0", FormAPI: "G0", FormDriver: "GD", FormAsync: "GA", FormAssert: "GN"}
	switch {
	case byForm[m.Form] != "":
		return byForm[m.Form]
	case named && (m.Generation == "G2" || m.Generation == "G2h"):
		return "G2c"
	case m.Generation == "" && strings.Contains(lead, "torch.OutOfMemoryError"):
		return "G4" // the name is new in 2.5, the rest of the message is missing
	}
	return m.Generation
}
