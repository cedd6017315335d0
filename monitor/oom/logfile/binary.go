package logfile

import (
	"bytes"
	"regexp"
	"sync"
)

// binaryKinds are files that lie beside logs and are named in their place. at is where the mark stands; -1: anywhere in
// the head.
var binaryKinds = []struct {
	at         int
	mark, what string
}{
	{0, "\x7fELF", "a program, a library or a core dump"},
	{0, "PK\x03\x04", "a checkpoint of PyTorch (a zip archive)"},
	{8, `{"`, "a safetensors file"}, // behind the length of its header
	{0, "\x89HDF\r\n\x1a\n", "an HDF5 file"},
	{0, "\x93NUMPY", "a NumPy array"},
	{0, "PAR1", "a Parquet file"},
	{0, "ARROW1", "an Arrow file"},
	{0, "SQLite format 3\x00", "a SQLite database"},
	{0, ":W&B", "a record of Weights & Biases"},
	{0, "GGUF", "a GGUF model"},
	{0, "\x89PNG\r\n", "a picture"},
	{0, "%PDF-", "a PDF document"},
	{257, "ustar", "a tar archive"},
	{-1, "brain.Event:", "an event file of TensorBoard"},
}

// checkpointName is how people name what torch.save wrote.
var checkpointName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\.(?:pt|pth|bin|ckpt|npz|pt2|distcp)$`)
})

// leastHead is how much text it takes to tell that it is none; controlShare is the part of it in control characters
// that no log has: weights have about a tenth, logs with broken bytes next to none.
const (
	leastHead    = 64
	controlShare = 0.04
)

// binaryKind says what a file is whose head shows that it is no text, "" for text. Zero bytes do not count: a log that
// was truncated while it was written begins with any number of them.
func binaryKind(head []byte) string {
	for _, k := range binaryKinds {
		switch {
		case k.at < 0 && bytes.Contains(head, []byte(k.mark)) && bytes.IndexByte(head, 0) >= 0,
			k.at >= 0 && len(head) > k.at && bytes.HasPrefix(head[k.at:], []byte(k.mark)) &&
				(k.at == 0 || bytes.IndexByte(head, 0) >= 0):
			return k.what
		}
	}
	texts, controls := 0, 0
	for _, b := range head {
		switch {
		case b == 0:
			continue
		case b < '\a' || b > '\r' && b < ' ' && b != '\x1b' || b == 0x7f:
			controls++
		}
		texts++
	}
	if texts >= leastHead && float64(controls) > controlShare*float64(texts) {
		return "binary data"
	}
	return ""
}
