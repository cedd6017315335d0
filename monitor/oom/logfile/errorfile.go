package logfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// errorFileBytes is the most that is read of an error file; they hold one traceback.
const errorFileBytes = 16 << 20

// report is an error file of torch.distributed.elastic (errors/error_handler.py): message is an object, or with older
// versions and other writers the text itself.
type report struct {
	Message json.RawMessage `json:"message"`
}

type details struct {
	Message   string `json:"message"`
	ExtraInfo struct {
		Callstack string          `json:"py_callstack"`
		Timestamp json.RawMessage `json:"timestamp"` // Unix seconds, written as a string
	} `json:"extraInfo"`
}

// errorFile turns an error file into the lines that Python would have printed, each behind its time. What is no error
// file stays as it is.
func errorFile(r io.Reader) (io.Reader, error) {
	data, err := io.ReadAll(io.LimitReader(r, errorFileBytes))
	if err != nil {
		return nil, fmt.Errorf("read error file: %w", err)
	}
	if text, ok := decodeErrorFile(data); ok {
		return strings.NewReader(text), nil
	}
	return io.MultiReader(bytes.NewReader(data), r), nil
}

func decodeErrorFile(data []byte) (text string, ok bool) {
	var file report
	if json.Unmarshal(data, &file) != nil || len(file.Message) == 0 {
		return "", false
	}
	var d details
	if json.Unmarshal(file.Message, &d.Message) != nil && json.Unmarshal(file.Message, &d) != nil {
		return "", false
	}
	prefix := ""
	if seconds, err := strconv.ParseFloat(strings.Trim(string(d.ExtraInfo.Timestamp), `"`), 64); err == nil &&
		seconds > 0 && seconds < 1<<40 {
		prefix = "[" + time.Unix(int64(seconds), 0).UTC().Format("2006-01-02 15:04:05 UTC") + "] "
	}
	lines := strings.TrimRight(d.ExtraInfo.Callstack, "\n")
	if !strings.Contains(lines, d.Message) {
		lines = strings.TrimLeft(lines+"\n"+d.Message, "\n")
	}
	return prefix + strings.ReplaceAll(lines, "\n", "\n"+prefix) + "\n", true
}
