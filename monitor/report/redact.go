package report

import (
	"net/netip"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"

	"oomguard/monitor"
)

// Redactor takes out of text what tells who and where: paths, hosts, users, addresses, e-mail, tokens. What explains a
// crash stays: sizes, ranks, line numbers, names of files and functions, packages and versions. Equal things are
// replaced by equal words, so a text stays readable.
type Redactor struct {
	names *regexp.Regexp // hosts and users that are known by name; nil: none
	words map[string]string
}

// The words that stand where something was taken out.
const (
	redactedPath  = "[path]"
	redactedHost  = "[host]"
	redactedUser  = "[user]"
	redactedIP    = "[ip]"
	redactedEmail = "[email]"
	redactedURL   = "[url]"
	redactedID    = "[id]"
)

// leastName is the shortest name that is looked for in the whole text: shorter ones are parts of ordinary words.
const leastName = 3

// commonNames are users and hosts that say nothing about anybody, and words of which text is full.
func commonNames() []string {
	return []string{"root", "git", "user", "users", "admin", "ubuntu", "debian", "ec2-user", "nobody", "runner",
		"jovyan", "app", "data", "work", "workspace", "home", "local", "localhost",
		"python", "python3", "torch", "train", "training", "model", "models", "rank", "node", "host", "gpu", "cuda",
		"conda", "shared", "public", "mnt", "tmp", "opt", "usr", "var"}
}

// whereNames are found: each pattern's group is a user or a host. The texts are those of shells, torchrun's table,
// Slurm, MPI and ssh.
var whereNames = sync.OnceValue(func() map[string][]*regexp.Regexp {
	re := regexp.MustCompile
	return map[string][]*regexp.Regexp{
		redactedUser: {
			re(`(?:/|\b)(?:home|Users|export/home)/([A-Za-z0-9][\w.-]*)`),
			re(`(?i)[a-z]:\\+Users\\+([^\\/:*?"<>|\s]+)`),
			re(`(?:^|[^A-Za-z_])(?:[A-Z]+_)*(?:USER|LOGNAME|USERNAME)=["']?([\w.-]+)`),
			re(`\b([a-z_][\w-]*)@[A-Za-z0-9][\w.-]*:`),
			re(`\b(?:ssh|scp|sftp|rsync|mosh|sshfs)\b[^\n;|&]*?\s([A-Za-z_][\w.-]*)@[A-Za-z0-9]`),
			re(`(?:^|[\s"'=:])~([A-Za-z][\w.-]*)(?:/|\b)`),
			re(`(?i)\blog(?:ged|ging) in as:? ["']?([A-Za-z][\w.-]{2,})`),
			re(`(?i)\blogin[ =:]+["']?([a-z_][\w.-]{2,})`), re(`\buser(?:name)?[ =:]+["']?([a-z_][\w.-]{2,})`),
		},
		redactedHost: {
			re(`\bhost(?:name)?\s*[=:]\s*["']?([A-Za-z0-9][\w.-]*)`), re(`\bsrun: error: ([A-Za-z0-9][\w.-]*): task`),
			re(`\[([A-Za-z][\w-]*(?:\.[\w-]+)*):\d+\]`),
			re(`\b(?:HOSTNAME|SLURMD_NODENAME|NODE_NAME|MASTER_ADDR|master_addr|master-addr)[= ]["']?([A-Za-z][\w.-]*)`),
			re(`\b(?:rdzv_endpoint|rdzv-endpoint)[= ]["']?([A-Za-z][\w.-]*)`),
			re(`\b[a-z_][\w-]*@([A-Za-z0-9][\w.-]*)`), re(`\bon node ([A-Za-z0-9][\w.-]*)`),
			re(`\bSLURM_(?:JOB_)?NODELIST=([A-Za-z][\w-]*)`),
			re(`\b(?:ssh|scp|sftp|rsync|mosh|sshfs)\b[^\n;|&]*?\s[A-Za-z_][\w.-]*@([A-Za-z0-9][\w.-]*)`),
			re(`(?:^|[^\\\w:])\\\\+([A-Za-z0-9][\w.-]+)\\`),
		},
	}
})

// newRedactor learns the hosts and users that the texts name, beside the given ones, so that they are taken out
// wherever they stand.
func newRedactor(hosts, users []string, texts ...string) *Redactor {
	r := &Redactor{words: map[string]string{}}
	learn := func(name, word string) {
		name = strings.TrimRight(name, ".-_")
		if sourceFile().MatchString(name) {
			return // [engine.py:160] is no host and its port
		}
		if len(name) >= leastName && !slices.Contains(commonNames(), strings.ToLower(name)) &&
			strings.ContainsFunc(name, isLetter) {
			r.words[name] = word
			if short, _, ok := strings.Cut(name, "."); ok && word == redactedHost && len(short) >= leastName &&
				!slices.Contains(commonNames(), short) {
				r.words[short] = word
			}
		}
	}
	for _, h := range hosts {
		learn(h, redactedHost)
	}
	for _, u := range users {
		learn(u, redactedUser)
	}
	for _, text := range texts {
		for word, patterns := range whereNames() {
			for _, p := range patterns {
				for _, m := range p.FindAllStringSubmatch(text, -1) {
					learn(m[1], word)
				}
			}
		}
	}
	if len(r.words) > 0 {
		r.names = namesPattern(r.words)
	}
	return r
}

var sourceFile = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\.(?:py|pyx|cc|cpp|cu|cuh|c|h|hpp|rs|go|js|ts|java|sh)$`)
})

func isLetter(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// namesPattern matches any of the names as a whole word, the longest first.
func namesPattern(words map[string]string) *regexp.Regexp {
	var names []string
	for name := range words {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool {
		if len(names[i]) != len(names[j]) {
			return len(names[i]) > len(names[j])
		}
		return names[i] < names[j]
	})
	for i, name := range names {
		names[i] = regexp.QuoteMeta(name)
	}
	return regexp.MustCompile(`\b(?:` + strings.Join(names, "|") + `)\b`)
}

type redaction struct {
	pattern *regexp.Regexp
	replace func(string) string
}

// redactions in their order: what holds other things goes first as a whole.
var redactions = sync.OnceValue(func() []redaction {
	re := regexp.MustCompile
	with := func(word string) func(string) string { return func(string) string { return word } }
	return []redaction{
		{re(`\b[a-z][a-z0-9+.-]{1,20}://[^\s"'<>)\]}|]+`), redactURL},
		{re(`File "[^"\n]+"`), func(frame string) string { return `File "` + redactFile(frame[6:len(frame)-1]) + `"` }},
		{re(`\beyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)?`), with(monitor.Redacted)}, // JSON web tokens
		{re(`(?i)\b(?:bearer|basic) [\w.~+/-]{12,}=*`), with(monitor.Redacted)},  // HTTP authorization
		{re(`(?i)\b((?:[\w-]*(?:secret|passw(?:or)?d|api[_-]?key|access[_-]?key|auth)[\w-]*|(?:hf|hub|wandb|git)[_-]?token)["']?\s*[=:]\s*["']?)[^\s"',;\[]{4,}`), keepName},
		{re(`\b[0-9a-f]{40,64}\b`), with(monitor.Redacted)},                      // Weights & Biases keys, hashes
		{re(`\b(?:GPU|MIG)-[0-9a-fA-F]{8}-[0-9a-fA-F-]{20,}`), with(redactedID)}, // a GPU's serial identity
		{re(`\b[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}\b`), with(redactedID)},       // hardware addresses
		{re(`\b[\w.+-]+@[A-Za-z0-9][\w-]*(?:\.[\w-]+)+\b`), with(redactedEmail)},
		{re(`\barn:aws[\w-]*:[\w-]*:[\w-]*:\d*:[^\s"',;)\]}]+`), with(redactedID)},
		{re(`(?:^|[^\\\w:])\\\\+[A-Za-z0-9][\w.$-]*(?:\\+[^\\/:*?"<>|\s]+)+`), redactShare},
		{re(`"(?:~[\w.-]*)?/[^"\n]*/[^"\n]*"|'(?:~[\w.-]*)?/[^'\n]*/[^'\n]*'`), redactQuoted},
		{re(`(?:^|[^\w.\]/~-])(?:~[\w.-]*)?/(?:[\w.@+~%-]+(?: [\w.@+~%-]+){0,3}/)+[\w.@+~%-]+(?: [\w.@+~%-]+){0,3}\.(?:py|sh|json|jsonl|ya?ml|toml|csv|tsv|parquet|arrow|bin|pt|pth|ckpt|safetensors|npy|npz|h5|tar|gz|zst|log|txt|out|err|md)\b`), redactLeadingPath},
		{re(`(?i)\b[a-z]:\\+(?:[^\\/:*?"<>|\s]+\\+)*[^\\/:*?"<>|\s]*`), redactPath},
		{re("(?:^|[^\\w.\\]/~-])/[^\"'\\n:]+\\.py:\\d+"), redactFrame},
		{re(`(?:^|[^\w.\]/~-])(?:~[\w.-]*)?/[\w.@+~%-]+(?:/[\w.@+~=%-]*)*`), redactLeadingPath},
		{re(`[0-9A-Za-z%.]*:[0-9A-Za-z%.]*:[0-9A-Za-z%.:]*`), redactIPv6},
		{re(`(?:==|so\.|v)?\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b(?:\.\d)?`), redactIPv4},
		{re(`\bip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}\b(?:\.[\w-]+)*`), with(redactedHost)},
		{re(`\b[A-Za-z0-9][\w-]*(?:\.[A-Za-z0-9][\w-]*)*\.(?:com|net|org|edu|gov|internal|lan|corp|localdomain|svc|cluster|intranet|ai)\b(?:\.[\w-]+)*`), redactDomain},
		{re(`\b[A-Za-z0-9][\w-]*(?:\.[A-Za-z0-9][\w-]*)+\b`), redactCountry},
	}
})

// Text is the text without what tells who and where.
func (r *Redactor) Text(text string) string {
	for _, x := range redactions() {
		text = x.pattern.ReplaceAllStringFunc(text, x.replace)
	}
	text = (*monitor.Scrubber)(nil).Text(text)
	if r.names != nil {
		text = r.names.ReplaceAllStringFunc(text, func(name string) string { return r.words[name] })
	}
	return text
}

// publicHosts have documentation that messages point to.
func publicHosts() []string {
	return []string{"pytorch.org", "docs.pytorch.org", "docs.nvidia.com", "developer.nvidia.com", "www.deepspeed.ai"}
}

func redactURL(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	host, _, _ := strings.Cut(rest, "/")
	if slices.Contains(publicHosts(), host) {
		return url
	}
	return redactedURL
}

func redactDomain(host string) string {
	if slices.Contains(publicHosts(), host) {
		return host
	}
	return redactedHost
}

// countries are the domains under which hosts are; sure: also where only one name stands before, as no module or file
// is called so.
func countries() (sure, likely, second []string) {
	return strings.Fields("de fr uk jp cn kr tw hk sg au nz ch nl dk fi cz sk hu ro pt ie il tr ru ua za vn eu us " +
			"gr lt lv ee hr ir"),
		strings.Fields("it be at pl no se es ca br mx bg rs th ae sa lu cl ar ph pk in local"),
		strings.Fields("ac co edu gov gob gouv gv org com net or ne go uni")
}

// redactCountry takes out a host under the domain of a country. Module names, attributes and files have dots too.
func redactCountry(name string) string {
	labels := strings.Split(strings.ToLower(name), ".")
	sure, likely, second := countries()
	last, before := labels[len(labels)-1], labels[len(labels)-2]
	switch {
	case strings.Contains(name, "_"), len(labels[0]) < 2 && len(labels) == 2:
		return name
	case slices.Contains(sure, last),
		len(labels) > 2 && slices.Contains(likely, last) && !slices.ContainsFunc(labels, digits),
		len(labels) > 2 && len(last) == 2 && slices.Contains(second, before):
		return redactedHost
	}
	return name
}

func digits(label string) bool { return strings.Trim(label, "0123456789") == "" }

// keepName leaves the name of a secret, with the sign and the blanks behind it, and takes its value.
func keepName(text string) string {
	i := strings.IndexAny(text, "=:") + 1
	for i < len(text) && strings.IndexByte(" \t\"'", text[i]) >= 0 {
		i++
	}
	return text[:i] + monitor.Redacted
}

// redactLeadingPath keeps the character before the path, which Go's patterns cannot look behind to.
func redactLeadingPath(match string) string {
	i := strings.IndexAny(match, "/~")
	return match[:i] + redactPath(match[i:])
}

// redactQuoted is redactPath for a whole path between quotes.
func redactQuoted(match string) string {
	q := match[:1]
	return q + redactPath(match[1:len(match)-1]) + q
}

// redactShare is redactPath for a path on another machine, \\host\share\file; it keeps the character before.
func redactShare(match string) string {
	i := strings.IndexByte(match, '\\')
	return match[:i] + redactPath(match[i:])
}

// redactFrame is redactLeadingPath for file:line as tracebacks are quoted; such a path may hold blanks.
func redactFrame(match string) string {
	i := strings.LastIndexByte(match, ':')
	return redactLeadingPath(match[:i]) + match[i:]
}

// redactFile is redactPath for what stands between quotes: it may hold blanks. A relative path tells nothing.
func redactFile(path string) string {
	if strings.HasPrefix(path, "/") || strings.HasPrefix(path, "~") || strings.Contains(path, `:\`) {
		return redactPath(path)
	}
	return path
}

// systemPaths are the same on every machine.
func systemPaths() []string {
	return []string{"/dev/", "/proc/", "/sys/", "/usr/lib/", "/usr/local/cuda", "/usr/include/"}
}

// redactPath keeps what a reader needs of a path: everything inside an installed package, the program's name in a bin
// folder, and the name of a file.
func redactPath(path string) string {
	for _, s := range systemPaths() {
		if strings.HasPrefix(path, s) {
			return path
		}
	}
	slashed := strings.ReplaceAll(strings.ReplaceAll(path, `\\`, `/`), `\`, "/")
	for _, folder := range []string{"/site-packages/", "/dist-packages/", "/bin/"} {
		if i := strings.LastIndex(slashed, folder); i >= 0 {
			return redactedPath + slashed[i:]
		}
	}
	name := slashed[strings.LastIndexByte(slashed, '/')+1:]
	if i := strings.LastIndexByte(name, '.'); i > 0 && i < len(name)-1 && strings.ContainsFunc(name[i+1:], isLetter) {
		return redactedPath + "/" + name
	}
	return redactedPath
}

func redactIPv4(text string) string {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.IsLoopback() || addr.IsUnspecified() { // a version, or this machine to itself
		return text
	}
	return redactedIP
}

func redactIPv6(text string) string {
	trimmed := strings.TrimRight(text, ".")
	addr, err := netip.ParseAddr(trimmed)
	if err != nil || addr.IsLoopback() || addr.IsUnspecified() || len(trimmed) < 6 { // a time, or C++'s double colon
		return text
	}
	return redactedIP + text[len(trimmed):]
}
