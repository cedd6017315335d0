package job

import (
	"encoding/json"
	"testing"
)

// Sources: openrlhf/cli (train_kd.py, train_ppo_ray.py), trl/trainer (gkd_config.py, ppo_config.py), torchtune/recipes
// (knowledge_distillation_*.py), LLaMA-Factory train/trainer_utils.py, verl/trainer/config; sizes: the built-in table
// of public models.
func TestSecondModels(t *testing.T) {
	const kd = "teacher_model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\n"
	for _, tt := range []struct {
		command string
		files   map[string]string
		want    string
	}{
		{"deepspeed --module openrlhf.cli.train_kd --pretrain Qwen/Qwen2.5-0.5B --teacher_model Qwen/Qwen2.5-72B --bf16", nil, "teacher Qwen/Qwen2.5-72B (72706203648 parameters)"},
		{"deepspeed --module openrlhf.cli.train_kd --pretrain Qwen/Qwen2.5-0.5B --teacher_model me/mine --bf16", nil,
			"teacher me/mine (size not known)"},
		{"deepspeed --module openrlhf.cli.train_kd --pretrain Qwen/Qwen2.5-0.5B --teacher_model Qwen/Qwen2.5-72B " +
			"--teacher_offload --zero_stage 3 --bf16", nil,
			"teacher Qwen/Qwen2.5-72B (72706203648 parameters, in host memory meanwhile)"},
		// GPUs of their own
		{"python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B --reward_pretrain Qwen/Qwen2.5-0.5B --bf16",
			nil, "none"},
		{"python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B --reward_pretrain Qwen/Qwen2.5-0.5B " +
			"--bf16 --colocate_all_models", nil,
			"reward Qwen/Qwen2.5-0.5B (494032768 parameters), critic Qwen/Qwen2.5-0.5B (494032768 parameters)"},
		{"python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B --remote_rm_url http://a --bf16 " +
			"--colocate_all_models", nil, "critic Qwen/Qwen2.5-7B (7615616512 parameters)"},
		{"python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B --remote_rm_url f.py --bf16 " +
			"--colocate_all_models --advantage_estimator reinforce", nil, "none"},
		{"python examples/scripts/gkd.py --model_name_or_path Qwen/Qwen2.5-0.5B --teacher_model_name_or_path " +
			"Qwen/Qwen2.5-7B --output_dir o --dataset_name d", nil,
			"teacher Qwen/Qwen2.5-7B (7615616512 parameters)"},
		{"python examples/scripts/ppo/ppo.py --model_name_or_path Qwen/Qwen2.5-7B --reward_model_path " +
			"Qwen/Qwen2.5-0.5B --output_dir o --dataset_name d", nil,
			"reward Qwen/Qwen2.5-0.5B (494032768 parameters), critic Qwen/Qwen2.5-0.5B (494032768 parameters)"},
		{"tune run knowledge_distillation_single_device --config kd.yaml",
			map[string]string{"kd.yaml": "model:\n  _component_: torchtune.models.llama3_2.lora_llama3_2_1b\n" + kd +
				"batch_size: 2\ndtype: bf16\noptimizer:\n  _component_: torch.optim.AdamW\n"},
			"teacher meta-llama/Llama-3.1-8B (8030261248 parameters)"},
		{"llamafactory-cli train --stage ppo --do_train --finetuning_type full --model_name_or_path Qwen/Qwen2.5-7B " +
			"--reward_model Qwen/Qwen2.5-0.5B --reward_model_type full --dataset d --template default --output_dir o",
			nil, "reward Qwen/Qwen2.5-0.5B (494032768 parameters)"},
		{"llamafactory-cli train --stage dpo --do_train --finetuning_type full --model_name_or_path " +
			"Qwen/Qwen2.5-0.5B --ref_model Qwen/Qwen2.5-7B --dataset d --template default --output_dir o",
			nil, "reference Qwen/Qwen2.5-7B (7615616512 parameters)"},
		{verlPPO + "critic.model.path=Qwen/Qwen2.5-7B", nil, "critic Qwen/Qwen2.5-7B (7615616512 parameters)"},
		{verlPPO + "algorithm.adv_estimator=grpo reward_model.enable=True reward_model.model.path=Qwen/Qwen2.5-7B", nil,
			"reward Qwen/Qwen2.5-7B (7615616512 parameters)"},
		{"torchrun run_clm.py --model_name_or_path Qwen/Qwen2.5-0.5B --output_dir o", nil, "none"},
	} {
		j := scriptJob(t, tt.files, 8, "", tt.command)
		t.Run(tt.command, func(t *testing.T) { checkSettings(t, j, map[string]string{"second_models": tt.want}) })
		again := &Job{}
		if data, err := json.Marshal(j); err != nil || json.Unmarshal(data, again) != nil ||
			again.SecondModels.Known != j.SecondModels.Known ||
			again.SecondModels.Value.String() != j.SecondModels.Value.String() {
			t.Errorf("%s: read again %v", tt.command, again.SecondModels)
		}
	}
}

// Sources: peft/peft_model.py (PeftModelForSequenceClassification and its siblings: classifier_module_names,
// qa_module_names).
func TestHeadsOfTaskType(t *testing.T) {
	script := func(lora string) map[string]string {
		return map[string]string{"train.py": "from transformers import AutoModelForSequenceClassification, Trainer, " +
			"TrainingArguments\nfrom peft import LoraConfig, TaskType, get_peft_model\n" +
			"model = AutoModelForSequenceClassification.from_pretrained('FacebookAI/roberta-base')\nmodel = " +
			"get_peft_model(model, LoraConfig(" + lora + "))\n" +
			"Trainer(model, TrainingArguments('o')).train()\n"}
	}
	for _, tt := range []struct {
		command string
		files   map[string]string
		want    string
	}{
		{"python train.py", script("task_type=TaskType.SEQ_CLS, target_modules=['query']"),
			"r 8, alpha 8, dropout 0, targets query, full copies of classifier,score"},
		{"python train.py", script("task_type='TOKEN_CLS', target_modules=['query'], modules_to_save=['classifier']"),
			"r 8, alpha 8, dropout 0, targets query, full copies of classifier,score"},
		{"python train.py", script("task_type='QUESTION_ANS', target_modules=['query']"),
			"r 8, alpha 8, dropout 0, targets query, full copies of qa_outputs"},
		{"python train.py", script("task_type='CAUSAL_LM', target_modules=['query']"),
			"r 8, alpha 8, dropout 0, targets query"},
		{"trl reward --model_name_or_path m --dataset_name d --output_dir o --use_peft --lora_target_modules q_proj " +
			"--lora_task_type SEQ_CLS", nil,
			"r 16, alpha 32, dropout 0.05, targets q_proj, full copies of classifier,score"},
		{"trl reward --model_name_or_path m --dataset_name d --output_dir o --use_peft --lora_target_modules q_proj",
			nil, "r 16, alpha 32, dropout 0.05, targets q_proj"},
		{"axolotl train a.yaml", map[string]string{"a.yaml": "base_model: m\nreward_model: true\nadapter: " +
			"lora\nlora_r: 8\nlora_alpha: 16\nlora_target_modules: [q_proj]\ndatasets:\n  - path: d\n    type: x\n"},
			"r 8, alpha 16, dropout 0, targets q_proj, full copies of classifier,score"},
		{"python train.py --model_name_or_path adapter",
			map[string]string{"train.py": "from transformers import Trainer\nimport argparse\np = " +
				"argparse.ArgumentParser()\np.add_argument('--model_name_or_path')\nTrainer().train()\n",
				"adapter/adapter_config.json": `{"peft_type": "LORA", "task_type": "SEQ_CLS", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "base_model_name_or_path": "m"}`},
			"r 4, alpha 8, dropout 0, targets q_proj, full copies of classifier,score"},
	} {
		t.Run(tt.command+tt.want, func(t *testing.T) {
			checkSettings(t, scriptJob(t, tt.files, 1, "", tt.command), map[string]string{"lora": tt.want})
		})
	}
}
