package document

import (
	"encoding/base64"
	"strings"
)

// Encoded is the document that a word of the command line holds in base64 with the alphabet for URLs, in which
// DeepSpeed's launcher and accelerate accept a configuration instead of a file's name. ok is false when the word is
// something else.
func Encoded(word string) (data []byte, ok bool) {
	data, err := base64.URLEncoding.DecodeString(word)
	if err != nil {
		return nil, false
	}
	return data, strings.HasPrefix(strings.TrimSpace(string(data)), "{")
}
