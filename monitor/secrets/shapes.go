package secrets

import (
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// shape is a kind of secret that is known by how it looks, whatever stands before it.
type shape struct {
	hints   []string // one of them stands in every match: a text without is passed over quickly
	pattern *regexp.Regexp
	keep    int                     // the group of the match that stays in front of the secret, 0: nothing
	only    func(match string) bool // nil: all
}

// shapes are the tokens of services as they publish them, and what carries credentials by its form.
var shapes = sync.OnceValue(func() []shape {
	of := func(pattern string, hints ...string) shape {
		return shape{hints: hints, pattern: regexp.MustCompile(pattern)}
	}
	keep := func(pattern string, hints ...string) shape {
		s := of(pattern, hints...)
		s.keep = 1
		return s
	}
	mixed := func(s shape) shape {
		s.only = func(m string) bool {
			return strings.ContainsFunc(m, unicode.IsDigit) || strings.ContainsFunc(m[3:], unicode.IsUpper)
		}
		return s
	}
	return []shape{
		of(`-----BEGIN [A-Z ]*PRIVATE KEY[A-Z ]*-----(?s:.*?)(?:-----END [A-Z ]*-----|\z)`, "PRIVATE KEY"),
		keep(`(?i)(\b(?:proxy-)?authorization["']?\s*[:=]\s*["']?)(?:(?:bearer|basic|token|digest|apikey|aws4-hmac-sha256)\s+)?[^\s"'\\]{4,}`, "uthorization", "UTHORIZATION"),
		mixed(keep(`(?i)(\b(?:bearer|basic) )[\w.~+/-]{12,}=*`, "earer ", "asic ", "EARER ", "ASIC ")),
		keep(`(?i)(\b(?:set-)?cookie["']?\s*:\s*)[^"'\r\n]{4,}`, "ookie", "OOKIE"),
		keep(`(\bmachine\s+\S+\s+login\s+\S+\s+password\s+)\S+`, "machine"), // ~/.netrc
		// Hugging Face, GitHub, GitLab, NVIDIA, Google, npm, Docker, PyPI
		of(`\b(?:hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{20,})`, "hf_", "api_org_"),
		of(`\b(?:github_pat_\w{20,}|gh[pousr]_[A-Za-z0-9]{20,})`, "github_pat_", "ghp_", "gho_", "ghu_", "ghs_",
			"ghr_"),
		of(`\bgl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-[\w.-]{16,}`, "glpat-", "gldt-", "glrt-", "glcbt-",
			"glptt-", "glft-", "glimt-", "glagent-", "gloas-", "glsoat-", "glffct-"),
		of(`\bnvapi-[\w-]{20,}`, "nvapi-"),
		of(`\b(?:AIza[\w-]{30,}|ya29\.[\w-]{10,}|GOCSPX-[\w-]{20,}|1//0[\w-]{30,})`, "AIza", "ya29.", "GOCSPX-",
			"1//0"),
		of(`\b(?:npm_[A-Za-z0-9]{30,}|dckr_[po]at_[\w-]{20,}|pypi-Ag[\w-]{16,})`, "npm_", "dckr_", "pypi-"),
		// AWS, Slack, OpenAI and the like, Weights & Biases
		of(`\b(?:AKIA|ASIA|ABIA|ACCA|AIDA|AROA)[0-9A-Z]{16}\b`, "AKIA", "ASIA", "ABIA", "ACCA", "AIDA", "AROA"),
		of(`\b(?:xox[abeoprs]-[\w-]{10,}|xapp-\d-[\w-]{10,})`, "xox", "xapp-"),
		mixed(of(`\bsk-[\w-]{20,}`, "sk-")),
		of(`\b(?:gsk_[A-Za-z0-9]{30,}|xai-[A-Za-z0-9]{30,}|pplx-[A-Za-z0-9]{30,}|r8_[A-Za-z0-9]{30,}|tgp_v1_[\w-]{30,}|lsv2_[ps]t_\w{30,}|wandb_v1_[\w-]{20,}|csk-[a-z0-9]{30,}|fw_[A-Za-z0-9]{20,})`,
			"gsk_", "xai-", "pplx-", "r8_", "tgp_v1_", "lsv2_", "wandb_v1_", "csk-", "fw_"),
		// others that a training machine may have
		of(`\b(?:[srp]k_live_[A-Za-z0-9]{16,}|SG\.[\w-]{16,}\.[\w-]{16,}|dapi[0-9a-f]{32}|hv[sbr]\.[\w-]{20,}|dop_v1_[a-f0-9]{40,}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}|gl(?:sa|c)_[A-Za-z0-9+/=_]{30,}|sntry[su]_[\w=+/-]{30,}|ATATT3[\w=-]{30,}|lin_api_\w{30,}|ntn_\w{30,}|figd_[\w-]{30,}|AGE-SECRET-KEY-1[0-9A-Z]{50,}|key-[0-9a-f]{32})`,
			"k_live_", "SG.", "dapi", "hvs.", "hvb.", "hvr.", "dop_v1_", "shpat_", "shpca_", "shppa_", "shpss_",
			"glsa_", "glc_", "sntrys_", "sntryu_", "ATATT3", "lin_api_", "ntn_", "figd_", "AGE-SECRET", "key-"),
		of(`\b\d{8,10}:AA[\w-]{30,}`, ":AA"),
		of(`\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?`, "eyJ"),
		keep(`(\bhooks\.slack\.com/(?:services|workflows|triggers)/)[^\s"'<>]+`, "hooks.slack.com"),
		keep(`(\bdiscord(?:app)?\.com/api/webhooks/)[^\s"'<>]+`, "/api/webhooks/"),
		keep(`(\b[\w.-]*webhook\.office\.com/)[^\s"'<>]+`, "webhook.office.com"),
		keep(`(\bapi\.telegram\.org/bot)[^\s"'<>/]+`, "api.telegram.org"),
		// scheme://user:secret@host: of a database up to the last @, elsewhere to that before the path, where there is
		// one behind a port or a name too
		{hints: []string{"://"}, pattern: regexp.MustCompile(`(\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#"'<>@:]*:)[^\s"'<>]*@`), keep: 1, only: func(m string) bool {
			return !strings.Contains(m[:strings.Index(m, "://")], "http") && !strings.HasPrefix(m, "git") &&
				!strings.HasPrefix(m, "ssh")
		}},
		keep(`(\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#"'<>@:]*:)[^\s/?#"'<>]*@`, "://"),
		keep(`(\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#"'<>@:]*:)(?:[^\s/?#"'<>@]*[^\s/?#"'<>@\d][^\s/?#"'<>@]*|)/[^\s"'<>@]*@`, "://"),
		{hints: []string{"://"}, pattern: regexp.MustCompile(`(\b[A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#"'<>@:]{16,}@`),
			keep: 1, only: func(m string) bool {
				_, user, _ := strings.Cut(strings.TrimSuffix(m, "@"), "://")
				return random(user) || hex().MatchString(user)
			}},
	}
})

func (s shape) hinted(text string) bool {
	for _, h := range s.hints {
		if strings.Contains(text, h) {
			return true
		}
	}
	return false
}

// byShape takes the secrets out of a text that are known by their form. found, if not nil, is told of each.
func byShape(text string, found func(secret string)) string {
	for _, s := range shapes() {
		if !s.hinted(text) {
			continue
		}
		text = replaceMatches(s.pattern, text, func(groups []string) string {
			match := groups[0]
			kept, end := "", ""
			if s.keep > 0 {
				kept = groups[s.keep]
			}
			if s.keep > 0 && strings.HasSuffix(match, "@") {
				end = "@"
			}
			secret := match[len(kept) : len(match)-len(end)]
			if s.only != nil && !s.only(match) || secret == Redacted || secret == "" {
				return match
			}
			if found != nil {
				found(secret)
			}
			return kept + Redacted + end
		})
	}
	return text
}

// replaceMatches replaces each match of a pattern by what do makes of it and its groups.
func replaceMatches(pattern *regexp.Regexp, text string, do func(groups []string) string) string {
	var out strings.Builder
	done := 0
	for _, at := range pattern.FindAllStringSubmatchIndex(text, -1) {
		groups := make([]string, len(at)/2)
		for i := range groups {
			if at[2*i] >= 0 {
				groups[i] = text[at[2*i]:at[2*i+1]]
			}
		}
		out.WriteString(text[done:at[0]])
		out.WriteString(do(groups))
		done = at[1]
	}
	if done == 0 {
		return text
	}
	out.WriteString(text[done:])
	return out.String()
}
