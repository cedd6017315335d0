package job

import "testing"

// Models that a command names beside the trained one, by the options of diffusers' and kohya's scripts, LLaVA,
// torchrl-like and own programs.
func TestNamedBesides(t *testing.T) {
	const unsized = " (size not known)"
	for words, want := range map[string]string{
		"--vae stabilityai/sd-vae-ft-mse": "vae stabilityai/sd-vae-ft-mse" + unsized,
		"--vae_path=/m/vae.safetensors":   "vae /m/vae.safetensors" + unsized,
		"--pretrained_vae_model_name_or_path madebyollin/sdxl-vae-fp16-fix": "vae madebyollin/sdxl-vae-fp16-fix" +
			unsized,
		"--text-encoder-path google/t5-v1_1-xxl": "text encoder google/t5-v1_1-xxl" +
			unsized,
		"--text_encoder_2 a/b --clip_l /m/clip_l.safetensors": "text encoder a/b" + unsized +
			", text encoder /m/clip_l.safetensors" + unsized,
		"--t5xxl /m/t5.safetensors --ae /m/ae.safetensors": "text encoder /m/t5.safetensors" +
			unsized + ", vae /m/ae.safetensors" + unsized,
		"--teacher_model_name_or_path me/big": "teacher me/big" + unsized,
		"--teacher resnet152":                 "teacher resnet152" + unsized,
		"--reward_model=OpenAssistant/rm --critic-model-path ./critic": "reward model OpenAssistant/rm" +
			unsized + ", critic ./critic" + unsized,
		"--controlnet_model_name_or_path lllyasviel/sd-controlnet-canny": "controlnet lllyasviel/sd-controlnet-canny" +
			unsized,
		"--clip_model ViT-L/14 --vision_tower openai/clip-vit-large-patch14": "clip model ViT-L/14" + unsized +
			", vision encoder openai/clip-vit-large-patch14" + unsized,
		"model.vae_path=/m/vae +policy.vision_backbone=dinov2": "vae /m/vae" + unsized +
			", vision encoder dinov2" + unsized,
		"--audio_encoder openai/whisper-small --speech_encoder_path a/b": "audio encoder openai/whisper-small" +
			unsized + ", audio encoder a/b" + unsized,

		"--use_ema --lr 1e-4":                                   "averaged copy of the weights" + unsized,
		"--model-ema --model-ema-decay 0.9998":                  "averaged copy of the weights" + unsized,
		"--momentum_teacher 0.996":                              "averaged copy of the weights" + unsized,
		"trainer.ema_decay=0.9999":                              "averaged copy of the weights" + unsized,
		"--use_ema=False --ema_decay 0 --model_ema false --swa": "averaged copy of the weights" + unsized,

		// what looks alike and names no model
		"--clip 1.0":                         "unknown: not a program that oomguard knows",
		"--clip norm":                        "unknown: not a program that oomguard knows",
		"--clip_grad 1.0 --clip_grad_norm 1": "unknown: not a program that oomguard knows",
		"--train_text_encoder":               "unknown: not a program that oomguard knows",
		"--vae none --teacher False":         "unknown: not a program that oomguard knows",
		"--vae_batch_size 4":                 "unknown: not a program that oomguard knows",
		"--teacher_temp 0.04 --reward accuracy --reward_weights 0.5,0.5": "unknown: not a program that oomguard knows",
		"--encoder resnet50 --backbone vit_b --output_dir vae":           "unknown: not a program that oomguard knows",
		"--vae --bf16":                  "unknown: not a program that oomguard knows",
		"--use_ema=False --ema_decay 0": "unknown: not a program that oomguard knows",
		"ema --config ema.yaml -m no":   "unknown: not a program that oomguard knows",
	} {
		t.Run(words, func(t *testing.T) {
			j := scriptJob(t, map[string]string{"train.py": "import torch\n"}, 1, "", "python train.py "+words)
			checkSettings(t, j, map[string]string{"second_models": want})
		})
	}
	j := scriptJob(t, nil, 1, "", "python train.py --vae a/b")
	if m := j.SecondModels.Value; len(m) != 1 || m[0].Origin != "command line --vae" || m[0].Params != 0 {
		t.Errorf("%+v", m)
	}
}
