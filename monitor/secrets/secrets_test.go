package secrets

import (
	"strings"
	"testing"
)

func TestScrubber(t *testing.T) {
	scrub := New(
		[]string{
			"HF_TOKEN=abcdefgh12345", "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
			"AWS_SECRET_ACCESS_KEY=wJalr/XUtn+FEMI",
			"DB_PASSWORD_PROD=hunter2hunter2", "PATH=/usr/bin", "HOME=/home/user", "SHORT_TOKEN=abc",
			`ODD_TOKEN=qu"ote\slash`,
		},
		[]string{"train.py", "--hub_token", "flagsecret1", "--api-key=flagsecret2", "--tokenizer_name",
			"bert-base-uncased", "--pad_token", "<|endoftext|>", "--text_key", "content"},
	)
	for _, tt := range []struct{ name, text, want string }{
		{"variable", "login abcdefgh12345 done", "login [redacted] done"},
		{"api key", "key=0123456789abcdef0123456789abcdef01234567", "key=[redacted]"},
		{"secret in the middle of the name", "hunter2hunter2", "[redacted]"},
		{"slashes", "wJalr/XUtn+FEMI", "[redacted]"},
		{"flag and value", "flagsecret1 flagsecret2", "[redacted] [redacted]"},
		{"inside JSON", `{"msg":"qu\"ote\\slash"}`, `{"msg":"[redacted]"}`},
		{"by shape", "token hf_ABCDEFGHIJKLMNOPQRSTUV", "token [redacted]"},
		{"in an address", "https://user:pa55word@host/x", "https://user:[redacted]@host/x"},
		{"ordinary words stay", "bert-base-uncased <|endoftext|> content abc /usr/bin",
			"bert-base-uncased <|endoftext|> content abc /usr/bin"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := scrub.Text(tt.text); got != tt.want {
				t.Errorf("Text(%q) = %q, want %q", tt.text, got, tt.want)
			}
		})
	}
	argv := scrub.Args([]string{"--hub_token", "flagsecret1", "--pad_token", "<|endoftext|>"})
	if strings.Join(argv, " ") != "--hub_token [redacted] --pad_token <|endoftext|>" {
		t.Errorf("Args = %q", argv)
	}
	var none *Scrubber
	if got := none.Text("hf_ABCDEFGHIJKLMNOPQRSTUV"); got != Redacted {
		t.Errorf("a nil Scrubber gave %q", got)
	}
}

// TestScrubberKeepsNumbers: a password of digits is cut out of texts, not out of sizes.
func TestScrubberKeepsNumbers(t *testing.T) {
	scrub := New([]string{"DB_PASSWORD=123456"}, nil)
	in := `{"e":"w","a":1234567}` + "\n" + `{"a":9123456,"msg":"login 123456"}` + "\n" + "torn 123456"
	want := `{"e":"w","a":1234567}` + "\n" + `{"a":9123456,"msg":"login [redacted]"}` + "\n" + "torn [redacted]"
	if got := string(scrub.JSON([]byte(in))); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
