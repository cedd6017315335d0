package launcher

import (
	"encoding/json"
	"strings"

	"oomguard/launcher/files"
)

// RankError is the exception with which a rank ended, as it described it in its error file. The text is the script's
// own and may hold anything.
type RankError struct {
	Message   string `json:"message"`   // "RuntimeError: what it said"
	Traceback string `json:"traceback"` // "" when the file has none
}

// maxErrorFile bounds what is read of an error file: a traceback takes some KiB, a message some more.
const maxErrorFile = 1 << 20

// withErrors adds to ranks that ended badly what they wrote into their error files.
func withErrors(ranks []RankExit) []RankExit {
	for i, r := range ranks {
		if r.ErrorFile == "" || r.Known && r.Code == 0 {
			continue
		}
		if text, err := files.Read(r.ErrorFile, maxErrorFile); err == nil { // otherwise it wrote none
			ranks[i].Error = parseErrorFile(text)
		}
	}
	return ranks
}

// parseErrorFile reads what torch/distributed/elastic/multiprocessing/errors/error_handler.py writes: {"message":
// {"message": ..., "extraInfo": {"py_callstack": ...}}}, or a plain text as the message. Anything else is nil: the file
// may be the script's own.
func parseErrorFile(text []byte) *RankError {
	var file struct {
		Message json.RawMessage `json:"message"`
	}
	if json.Unmarshal(text, &file) != nil {
		return nil
	}
	var plain string
	if json.Unmarshal(file.Message, &plain) == nil && plain != "" {
		return &RankError{Message: plain}
	}
	var described struct {
		Message   string `json:"message"`
		ExtraInfo struct {
			Traceback string `json:"py_callstack"`
		} `json:"extraInfo"`
	}
	if json.Unmarshal(file.Message, &described) != nil || described.Message == "" {
		return nil
	}
	return &RankError{Message: described.Message, Traceback: strings.TrimRight(described.ExtraInfo.Traceback, "\n")}
}
