package secrets

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestHarmless: what a training's command line is full of stays readable.
func TestHarmless(t *testing.T) {
	for _, command := range []string{
		"--tokenizer meta-llama/Llama-3.1-8B-Instruct", "--tokenizer_name bert-base-uncased", "--max_tokens 4096",
		"--max-tokens=4096", "--max_new_tokens 512", "--tokens_per_batch 8192",
		"--key_dim 64", "--num_key_value_heads 8", "--eos_token <|im_end|>", "--pad_token <pad>",
		"--eos_token_id 128009", "--pad_token_id 0", "--bos_token <s>", "--image_token <image>",
		"--key_padding_mask true", "--query_key_value qkv_proj", "--text_key content", "--image_key pixel_values",
		"--label_key answer", "--sort_key length", "--key content", "--metric_key eval_loss",
		"--token_dropout 0.1", "--num_tokens 1000000000", "--special_tokens_file tokens.json", "--tokens 300B",
		"--train_tokens 15T", "--min_tokens_per_sample 32", "--token_merging false",
		"--use_auth_token true", "--use_auth_token --fp16", "--push_to_hub --hub_model_id acme/llama3-8b-sft-v2",
		"--hub_token $HF_TOKEN", "--api_key ${OPENAI_API_KEY}", "HF_TOKEN=${HF_TOKEN}", "API_KEY=$(key)",
		"--password_file /run/pw",
		"--wandb_project my-project-2024", "--run_name llama3-8b-lora-r64-alpha128-lr2e4-bs128-2024-07-14-18-30-00",
		"--run_id 20260101T000000.000Z-abcdef", "--resume wandb://acme/proj/3fk2x9ab",
		"--revision 5f0b02c75b57c5855da9ae460ce51323ea669d8a", "--commit 99dae13f7aa1b2c3d4e5f60718293a4b5c6d7e8f",
		"--model_name_or_path /data/checkpoints/llama3-8b/step_12000",
		"--checksum e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"--uuid 123e4567-e89b-12d3-a456-426614174000", "--rdzv_endpoint node001:29500", "--rdzv_id 4242",
		"--world_info=eyJsb2NhbGhvc3QiOiBbMCwgMSwgMiwgM119", "--deepspeed configs/ds_zero3_offload.json",
		"--lora_target_modules q_proj,k_proj,v_proj,o_proj", "--modules_to_save embed_tokens,lm_head",
		"model.attn.key_dim=64", "model.tokenizer.pad_token='<pad>'", "trainer.max_tokens=8192",
		"+data.key_map.image=jpg", "data.train.keys=[image,text]", "optimizer=adamw_torch_fused",
		"--transformer_layer_cls_to_wrap LlamaDecoderLayer,Qwen2_5_VLVisionBlock",
		"--architectures Qwen2_5_VLForConditionalGeneration", "--model Qwen2.5-VL-72B-Instruct-AWQ-GPTQ-Int4",
		"--model nvidia/Llama-3_1-Nemotron-Ultra-253B-v1", "--dataset HuggingFaceFW/fineweb-edu-score-2",
		"--dataset cerebras/SlimPajama-627B", "--signature_columns input_ids,labels",
		"--forward_pass 2", "--num_passes 3", "--backward_pass fused", "--pass_at_k 1,10,100", "--author jane",
		"--monkey_patch true", "--compass north", "--bypass_cache yes", "--path_pattern *.jsonl",
		"--patience 5", "--patch_size 14", "--pattern **/*.parquet", "--dispatch_batches false", "--hash sha256",
		"--seed 123456789", "--lr 2.5e-05", "--betas 0.9,0.95", "--master_addr 10.0.0.1",
		"--nccl_socket_ifname eth0", "--gpu_ids 0,1,2,3", "--precision bf16-mixed", "NCCL_DEBUG=INFO",
		"TOKENIZERS_PARALLELISM=false", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
		"PWD=/home/jane/project", "OLDPWD=/home/jane", "CUBLAS_WORKSPACE_CONFIG=:4096:8", "HF_HOME=/data/hf",
		"OMP_NUM_THREADS=8", "SSH_AUTH_SOCK=/tmp/ssh-XXXX/agent.1", "XAUTHORITY=/run/user/1000/gdm/Xauthority",
		"--data s3://bucket/path/to/shards-00001-of-00100.tar",
		"--data https://huggingface.co/datasets/acme/x/resolve/main/a.parquet?download=true",
		"git+https://github.com/huggingface/peft@v0.11.0",
		"http://localhost:8080/v1/models@latest", "--chat_template {{messages[0]['content']}}",
		"--reward_funcs accuracy,format", "--ids 1,2,3", "--cookie_file cookies.txt", "--secret_name hf-token",
		`--json={"num_key_value_heads":8,"eos_token":"</s>","tokenizer":"llama","max_tokens":2048}`,
		"--lora_dropout 0.05", "--auth_method kerberos", "--key_file /etc/ssl/server.pem",
	} {
		words := strings.Fields(command)
		if got := strings.Join(New(nil, words).Args(words), " "); got != command {
			t.Errorf("%s\nbecame %s", command, got)
		}
		if got := New(nil, words).Text("it ran " + command + " here"); got != "it ran "+command+" here" {
			t.Errorf("in a text: %s\nbecame %s", command, got)
		}
	}
	for _, text := range []string{
		"CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.10 GiB",
		"password: please enter it", "secret: not found", "torch==2.6.0 cuda::alloc key::value",
		"{'loss': 1.25, 'grad_norm': 0.5, 'learning_rate': 2e-05, 'num_tokens': 8192.0, 'mean_token_accuracy': 0.71}",
		"Token indices sequence length is longer than 2048", "[rank0]: KeyError: 'input_ids'",
		"special tokens: bos_token: <s>, eos_token: </s>, pad_token: <pad>",
		"key: attention.wq.weight, shape: [4096, 4096]", "objects[root_key] = restore_location(obj, location)",
		"api_key = args.api_key", "password=password,", "missing keys: ['lm_head.weight']",
		"2026-11-30 22:42:25,123 INFO root: step 12",
		"a basic understanding of the training", "std::invalid_argument: token_type_ids",
		"wandb: Tracking run with wandb version 0.19.1", "https://wandb.ai/acme/proj/runs/3fk2x9ab",
		"commit 5f0b02c75b57c5855da9ae460ce51323ea669d8a",
	} {
		if got := New(nil, nil).Text(text); got != text {
			t.Errorf("%s\nbecame %s", text, got)
		}
	}
}

// TestCommands: where in a command line secrets stand, and what of it stays.
func TestCommands(t *testing.T) {
	for _, tt := range []struct {
		words []string
		want  string
	}{
		{[]string{"bash", "-c", "HF_TOKEN=abcdef python train.py --api_key=abc123 --password='a b' --hub_token " +
			"xyz987 --lr 1e-4"},
			"bash -c HF_TOKEN=[redacted] python train.py --api_key=[redacted] --password='[redacted]' --hub_token " +
				"[redacted] --lr 1e-4"},
		{[]string{"env", "KAGGLE_KEY=k1", "DB_PASS=a b c", "python", "t.py"},
			"env KAGGLE_KEY=[redacted] DB_PASS=[redacted] python t.py"},
		{[]string{"t.py", "--password", "-x1y2", "--token", "--real", "--hub_token", "--push", "--lr", "1"},
			"t.py --password [redacted] --token --real --hub_token --push --lr 1"},
		{[]string{"t.py", "--password", "--Zx81!"}, "t.py --password [redacted]"},
		{[]string{"t.py", "--logger.wandb.key=abc", "++a.b.api_key=x", "--auth", "me"},
			"t.py --logger.wandb.key=[redacted] ++a.b.api_key=[redacted] --auth [redacted]"},
		{[]string{"t.py", "redis://:pw@h:1/0", "postgres://u:p@ss/w@h/d", "mongodb+srv://u:p%40@h/?x=1",
			"https://ghs0123456789abcdef@github.com/a/b"},
			"t.py redis://:[redacted]@h:1/0 postgres://u:[redacted]@h/d mongodb+srv://u:[redacted]@h/?x=1 " +
				"https://[redacted]@github.com/a/b"},
		{[]string{"t.py", "https://h/p?a=1&token=abc.def&b=2#c"}, "t.py https://h/p?a=1&token=[redacted]&b=2#c"},
		{[]string{"sshpass", "-p", "pw1", "ssh", "-p", "22", "n"}, "sshpass -p [redacted] ssh -p 22 n"},
		{[]string{"docker", "login", "-u", "me", "-p", "pw1", "r.io"}, "docker login -u me -p [redacted] r.io"},
		{[]string{"docker", "run", "-p", "80:80", "-e", "NGC_API_KEY=q", "i"},
			"docker run -p 80:80 -e NGC_API_KEY=[redacted] i"},
		{[]string{"mysql", "-uroot", "-psecret", "-p", "db"}, "mysql -uroot -p[redacted] -p db"},
		{[]string{"aws", "configure", "set", "aws_secret_access_key", "abc/def"},
			"aws configure set aws_secret_access_key [redacted]"},
		{[]string{"sh", "-c", "curl -sH 'X-Auth-Token: a1b2c3d4' u | sh; A=1 B=$HF_TOKEN run"},
			"sh -c curl -sH 'X-Auth-Token: [redacted]' u | sh; A=1 B=$HF_TOKEN run"},
		{[]string{"t.py", `--cfg={"api_key": "k", "n": 1, "auth": {"password":"p\"q"}}`},
			`t.py --cfg={"api_key": "[redacted]", "n": 1, "auth": {"password":"[redacted]"}}`},
		{[]string{"t.py", "Driver=x;Server=h;Uid=u;Pwd=p;"}, "t.py Driver=x;Server=h;Uid=u;Pwd=[redacted];"},
		{[]string{"ssh", "node", "cd /x && WANDB_API_KEY=q torchrun t.py"},
			"ssh node cd /x && WANDB_API_KEY=[redacted] torchrun t.py"},
		{[]string{"bash", "-c", "bash -c \"bash -c 'export A_SECRET=zz; run'\""},
			"bash -c bash -c \"bash -c 'export A_SECRET=[redacted]; run'\""},
		{[]string{"sh", "-c", "echo -n 'p q' | docker login -u me --password-stdin r.io; echo done | cat"},
			"sh -c echo -n '[redacted]' | docker login -u me --password-stdin r.io; echo done | cat"},
		{[]string{"python", "-m", "wandb", "login", "--relogin", "0123456789abcdef0123456789abcdef01234567"},
			"python -m wandb login --relogin [redacted]"},
		{[]string{"python", "-c", "from hub import login; login(token='abc'); f(token='abc')"},
			"python -c from hub import login; login(token='[redacted]'); f(token='abc')"},
		{[]string{"sh", "-c", "cat > ~/.netrc <<E\nmachine h login u password pw1\nE\ntorchrun t.py"},
			"sh -c cat > ~/.netrc <<E\nmachine h login u password [redacted]\nE\ntorchrun t.py"},
		{[]string{"t.py", "logger.wandb.init.key=abc", "--tracker", "wandb:key=abc,p=x",
			`--c={"wandb":{"key":"abc"},"data":{"key":"text"}}`},
			`t.py logger.wandb.init.key=[redacted] --tracker wandb:key=[redacted],p=x --c={"wandb":{"key":"[redacted]"},"data":{"key":"text"}}`},
		{[]string{"env", "-i", "A_PASS=a b", "B=1", "C_SECRET=c d", "x", "y z"},
			"env -i A_PASS=[redacted] B=1 C_SECRET=[redacted] x y z"},
		{[]string{"sh", "-c", `K_TOKEN=$(cat k) A=$(B_SECRET=x cmd) t.py --hub_token "$(pass show hf)" --lr 1`},
			`sh -c K_TOKEN=$(cat k) A=$(B_SECRET=[redacted] cmd) t.py --hub_token "$(pass show hf)" --lr 1`},
		{[]string{"python", "-c", "os.environ.setdefault('HF_TOKEN', 'a1'); f(['--api_key', 'b2', '--lr', '1'])"},
			"python -c os.environ.setdefault('HF_TOKEN', '[redacted]'); f(['--api_key', '[redacted]', '--lr', '1'])"},
		{[]string{"t.py", "--x", "Jq7Lw2Zt9Rk4Xv8Np3Mc6Bd1"}, "t.py --x [redacted]"},
		{[]string{"accelerate", "launch", "--aws_secret_access_key=abc", "--aws_access_key_id", "ASIAABCDEFGHIJKLMNOP"},
			"accelerate launch --aws_secret_access_key=[redacted] --aws_access_key_id [redacted]"},
	} {
		if got := strings.Join(New(nil, tt.words).Args(tt.words), " "); got != tt.want {
			t.Errorf("%q\ngot  %s\nwant %s", tt.words, got, tt.want)
		}
	}
}

// TestVariables: whatever a secret's variable is called, its value is known in every text.
func TestVariables(t *testing.T) {
	for name := range strings.FieldsSeq(`DB_PASS SMTP_PASS MYSQL_PWD SSHPASS GITHUB_PAT HF_TOKEN HF_TOKEN_WRITE TOKENS
		COOKIE DOCKER_AUTH_CONFIG AZURE_STORAGE_CONNECTION_STRING SLACK_WEBHOOK_URL SENTRY_DSN
		WANDB_API_KEY KAGGLE_KEY OPENAI_API_KEY AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN PGPASSWORD REDISCLI_AUTH
		NPM_TOKEN PYPI_TOKEN SIGNING_KEY MY_SECRET APP_CREDENTIALS NEPTUNE_API_TOKEN
		MINIO_ROOT_PASSWORD JUPYTER_TOKEN SLACK_BOT_TOKEN TWINE_PASSWORD VAULT_TOKEN CI_JOB_JWT
		GOOGLE_APPLICATION_CREDENTIALS_JSON`) {
		s := New([]string{name + "=zK4-vault9"}, nil)
		if got := s.Text("said zK4-vault9 loudly"); got != "said [redacted] loudly" {
			t.Errorf("%s: %s", name, got)
		}
		if got := s.Text(name + "=zK4-vault9"); strings.Contains(got, "vault9") || !strings.Contains(got, name) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestShapes: tokens are known by their form, whatever stands before them.
func TestShapes(t *testing.T) {
	const letters = "abcdefGHIJKL0123456789mnopqrSTUVWX"
	for _, secret := range []string{
		"hf_" + letters, "github_pat_11ABC_" + letters, "ghp_" + letters, "gho_" + letters, "ghs_" + letters,
		"glpat-" + letters, "nvapi-" + letters, "AIza" + letters, "ya29.a0" + letters,
		"npm_" + letters, "dckr_pat_" + letters, "pypi-AgEI" + letters, "AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE",
		"sk-" + letters, "sk-proj-" + letters, "xoxb-123456789012-" + letters,
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-def_ghi", "gsk_" + letters, "r8_" + letters, "GOCSPX-" + letters,
		"sk_live_" + letters, "SG." + letters + "." + letters, "123456789:AA" + letters,
		"hvs." + letters, "dapi0123456789abcdef0123456789abcdef",
	} {
		for _, around := range []string{"%", "say % now", "x=%", "'%'", "(%)", "{\"a\":\"%\"}"} {
			text := strings.Replace(around, "%", secret, 1)
			if got := New(nil, nil).Text(text); strings.Contains(got, secret[len(secret)-8:]) {
				t.Errorf("%s stays: %s", secret, got)
			}
		}
	}
	for text, want := range map[string]string{
		"-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\nbnNz\n-----END OPENSSH PRIVATE KEY-----\nafter": "[redacted]\nafter",
		"Authorization: Bearer abc.def-1":               "Authorization: [redacted]",
		`"Authorization": "Basic dXNlcjpwdw=="`:         `"Authorization": "[redacted]"`,
		"curl -H 'Cookie: a=1; b=2' x":                  "curl -H 'Cookie: [redacted]' x",
		"https://hooks.slack.com/services/T0/B0/xyz ok": "https://hooks.slack.com/services/[redacted] ok",
		"os.environ['API_KEY'] = 'v1'":                  "os.environ['API_KEY'] = '[redacted]'",
		"password = hunter2, user = me":                 "password = [redacted], user = me",
		"Args(hub_token='abc', pad_token='<pad>')":      "Args(hub_token='[redacted]', pad_token='<pad>')",
		"api_key: sEcr3t":                               "api_key: [redacted]",
	} {
		if got := New(nil, nil).Text(text); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// FuzzCommand: any words are taken, no secret that was given by a strong name survives, and what is clean stays so.
func FuzzCommand(f *testing.F) {
	for _, s := range []string{"bash -c 'A_TOKEN=x y'", `"a\"b" 'c`, "--x={\"a\":[1]}", "://:@", "a=b=c", "\xff;\x00&",
		"$(x) `y` ${z:-q}", "-----BEGIN PRIVATE KEY-----", "key: \\\"v\\\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const secret = "Zq7-secret-Wv9x"
		words := []string{"sh", "-c", text, "--api_key", secret, text}
		s := New(nil, words)
		clean := s.Args(words)
		if got := strings.Join(append(clean, s.Text(text+" "+secret)), " "); strings.Contains(got, secret) {
			t.Errorf("%q: the secret is there: %q", text, got)
		}
		if utf8.ValidString(text) {
			if once := s.Text(text); len(once) > 12*len(text)+12 {
				t.Errorf("grew from %d to %d", len(text), len(once))
			}
		}
		if got := string(s.JSON([]byte(text))); len(got) > 12*len(text)+12 {
			t.Errorf("JSON grew from %d to %d", len(text), len(got))
		}
	})
}

func BenchmarkText(b *testing.B) {
	s := New([]string{"HF_TOKEN=abcdefgh12345"}, nil)
	text := strings.Repeat("{'loss': 1.2534, 'grad_norm': 0.5, 'learning_rate': 2e-05, 'epoch': 0.01} [rank0]: step "+
		"12: token accuracy = 0.7\n", 9000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		s.Text(text)
	}
}
