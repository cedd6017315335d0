package secrets

import (
	"slices"
	"strings"
	"sync"
	"unicode"
)

// suspicion is how much a name says that its value is a secret.
type suspicion int

const (
	none suspicion = iota // the name says nothing of secrets
	// it may be: a key of a table or of a lock, a token of text or of a login; the value decides
	weak
	strong // whatever the value is
)

// words makes a set of a list in one text.
func words(text string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(text) {
		set[w] = true
	}
	return set
}

// vocabulary is what parts of names mean. Training has tokens, keys and passes of its own, which are no secrets.
type vocabulary struct {
	stems    []string        // in a part, whatever stands around
	secret   map[string]bool // a part as a whole
	last     map[string]bool // a part that decides when it is the last one
	owners   map[string]bool // in front of key and token: what they open
	services map[string]bool // in front of key and token, also further away: who gives them out
	training map[string]bool // in front of token(s), key(s), pass: those of training
	measured map[string]bool // behind token(s) and key(s): again those of training
	neutral  map[string]bool // the last part: about a secret, not the secret
	switches map[string]bool // the first part: yes or no
	harmless map[string]bool // whole names
}

var dictionary = sync.OnceValue(func() vocabulary {
	return vocabulary{
		stems: strings.Fields("password passwd passphrase passcode secret credential apikey accesskey privatekey " +
			"accountkey authtoken accesstoken apitoken connectionstring sshpass pgpass"),
		secret: words(`pwd psw pat cred creds cookie cookies dsn webhook webhooks jwt bearer authorization netrc sas otp totp htpasswd pswd`),
		last:   words(`pass pw auth auths authn pin_code`),
		owners: words(`api app apps access secret private encryption encrypt signing sign session license licence
			service account ssh auth admin client shared subscription write read ingest
			deploy deployment tls ssl gpg pgp hmac crypt crypto bot login refresh bearer oauth oauth2 id identity
			personal pat csrf xsrf db database mail email registry user root master device notebook scale`),
		services: words(`wandb kaggle hf hub hugging face huggingface huggingfacehub openai anthropic claude azure aws
			amazon gcp gcs google gemini vertex comet neptune clearml swanlab mlflow aim dagshub
			together replicate cohere mistral groq nvidia ngc nim github gitlab git gh gl bitbucket slack discord
			telegram feishu lark dingtalk wechat datadog dd newrelic pinecone weaviate qdrant
			s3 minio r2 wasabi backblaze docker pypi npm jira confluence notion airtable sentry grafana influx influxdb
			influxdb2 elastic
			vault consul nomad k8s kubernetes kube
			deepseek dashscope qwen moonshot zhipu baidu volc modelscope ms perplexity openrouter fireworks runpod vast
			vastai paperspace coreweave databricks snowflake
			redis mongo mongodb mysql postgres smtp sendgrid mailgun twilio stripe serp serpapi tavily exa brave bing
			cloudflare cf heroku vercel netlify digitalocean
			langchain langsmith langfuse helicone wolfram labelbox roboflow ultralytics polyaxon sagemaker jupyter`),
		training: words(`pad eos bos unk sep cls mask image images video audio special num max min total start end stop
			begin per new prompt completion response answer think vision img tool role
			assistant system fake im decoder encoder boi eoi placeholder chat byte sub next first last input output n
			instruction human query doc latent patch register speech text texts action class
			soft virtual extra added additional split separator newline space blank context image_start generated label
			labels sort group primary foreign dict cache kv qk num_kv value values batch
			forward backward single multi second two one data train eval render early skip drop source target memory
			reserved control trigger gen cond sample samples seen sequence seq
			dataset column question content messages caption feature features partition join index lookup heatmap metric
			best lora ref tgt src keep ignore ignored skipped trained`),
		measured: words(`id ids type types count counts level length len lengths dropout merge merging size sizes num
			limit budget per embedding embeddings shift mixer drop classification mask weight weights loss
			reduction dim dims batch idx index label labels pos position padding head heads value values norm proj bias
			scale states cache chunk ratio rate padded prune pruning wise usage throughput layer layers
			channels points frames map mapping order column columns field fields`),
		neutral: words(`file files filename path paths dir folder name names id ids host hostname port type types mode
			len length size dim count num stdin ttl timeout expiry expires expiration region version
			format env var variable field column prefix suffix manager provider arn policy enabled required algorithm
			alg method class module scheme user username server endpoint engine backend store helper scope scopes url
			uri`),
		switches: words(`use no is has enable enabled disable disabled with without require requires allow skip show log print save validate verify check need needs want push`),
		harmless: words(`init_cwd xauthority ssh_auth_sock ssh_askpass git_askpass authors author keys key_file
			tokenizers_parallelism cublas_workspace_config gpg_tty keyboard lessopen
			slurm_jobid world_info auth_method secretsmanager passthrough`),
	}
})

// parts takes a name apart at its signs and where an upper case letter begins a word: logger.wandbKey -> logger wandb
// key.
func parts(name string) []string {
	var out []string
	for _, word := range strings.FieldsFunc(name,
		func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		from := 0
		runes := []rune(word)
		for i := 1; i < len(runes); i++ {
			if unicode.IsUpper(runes[i]) && unicode.IsLower(runes[i-1]) {
				out, from = append(out, strings.ToLower(string(runes[from:i]))), i
			}
		}
		out = append(out, strings.ToLower(string(runes[from:])))
	}
	return out
}

// judgeName says how much the name of a variable, an option or a field tells of its value.
func judgeName(name string) suspicion {
	d := dictionary()
	if len(name) > 200 || d.harmless[strings.ToLower(strings.TrimLeft(name, "-+~"))] {
		return none
	}
	p := parts(name)
	if len(p) == 0 {
		return none
	}
	found := none
	for i := range p {
		found = max(found, d.judgePart(p, i))
	}
	last := p[len(p)-1]
	if found == weak && strings.ToUpper(name) == name &&
		(strings.HasPrefix(last, "token") || strings.HasPrefix(last, "key")) {
		found = strong // a variable of the environment
	}
	if found > none && (len(p) > 1 && d.neutral[last] && !carries(p, last) || d.switches[p[0]]) {
		found--
	}
	return found
}

// carries: the address of a webhook is the secret itself.
func carries(p []string, last string) bool {
	return (last == "url" || last == "uri") && (slices.Contains(p, "webhook") || slices.Contains(p, "webhooks"))
}

func (d vocabulary) judgePart(p []string, i int) suspicion {
	part, before, after := p[i], "", ""
	if i > 0 {
		before = p[i-1]
	}
	if i+1 < len(p) {
		after = p[i+1]
	}
	switch {
	case d.secret[part] || slices.ContainsFunc(d.stems, func(stem string) bool { return strings.Contains(part, stem) }):
		return strong
	case part == "string" && before == "connection":
		return strong
	case d.last[part] && after == "":
		if d.training[before] {
			return none
		}
		return strong
	case part == "auth" && (d.owners[before] || d.services[before]):
		return strong
	case part == "auth":
		return weak
	case part == "key" || part == "keys" || part == "token" || part == "tokens":
		return d.judgeKey(p[:i], before, after)
	case strings.HasSuffix(part, "token") || strings.HasSuffix(part, "key") || strings.HasSuffix(part, "pass") ||
		part == "sig" || part == "signature":
		return weak
	}
	return none
}

// judgeKey tells the keys and tokens of logins from those of tables and texts.
func (d vocabulary) judgeKey(earlier []string, before, after string) suspicion {
	switch {
	case d.owners[before] || d.services[before]:
		return strong
	case d.training[before] || d.measured[after]:
		return none
	case slices.ContainsFunc(earlier, func(part string) bool { return d.services[part] }):
		return strong
	}
	return weak
}
