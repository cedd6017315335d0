package monitor

import "oomguard/monitor/secrets"

// Redacted stands where a secret was.
const Redacted = secrets.Redacted

// Scrubber removes secrets from everything that is written down.
type Scrubber = secrets.Scrubber

// NewScrubber learns the secrets of an environment ("NAME=value") and of a command line.
func NewScrubber(environ, argv []string) *Scrubber { return secrets.New(environ, argv) }
