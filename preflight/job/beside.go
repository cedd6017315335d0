package job

import (
	"slices"
	"strconv"
	"strings"

	"oomguard/preflight/job/shell"
)

// A besideShape is how programs call the option that names a model beside the one that is trained.
type besideShape struct {
	role  string
	stems []string // the option without dashes, pretrained_ in front and what pathEndings lists behind
	paths bool     // the same word also means other things, so that only a path or a hub name counts
	// copies: the option makes a copy of the trained model, and names nothing: a flag, or a number that is not 0.
	copies bool
}

// besideShapes are the one table of them. Such a model is named, not counted: whether it is trained, and where it
// lives, the program decides.
var besideShapes = []besideShape{
	{role: "vae", stems: []string{"vae", "vae_model", "autoencoder", "autoencoder_model", "first_stage_model", "vqgan",
		"vqvae", "image_tokenizer", "video_tokenizer", "visual_tokenizer"}},
	{role: "vae", stems: []string{"ae"}, paths: true},
	{role: "text encoder", stems: []string{"text_encoder", "text_encoder_model", "text_encoder_one", "text_encoder_two",
		"text_encoder_three", "text_tower", "t5", "t5_model", "t5xxl",
		"umt5", "clip_l", "clip_g", "clip_text_model", "prompt_encoder", "llama_encoder"}},
	{role: "clip model", stems: []string{"clip_model", "clip_vision_model", "clip_encoder", "open_clip_model",
		"openclip_model", "clip_teacher"}},
	{role: "clip model", stems: []string{"clip"}, paths: true},
	{role: "vision encoder", stems: []string{"vision_tower", "vision_encoder", "vision_backbone", "vision_model",
		"visual_encoder", "visual_model", "vit_model", "image_tower",
		"image_encoder", "image_encoder_model", "mm_vision_tower", "dino_model", "dinov2_model", "repa_encoder"}},
	{role: "audio encoder", stems: []string{"audio_encoder", "audio_tower", "speech_encoder", "speech_tower",
		"whisper_model", "wav2vec_model", "hubert_model", "speaker_encoder", "vocoder", "codec_model"}},
	{role: "teacher", stems: []string{"teacher", "teacher_model", "teacher_base", "teacher_ckpt", "distill_teacher",
		"distillation_teacher", "kd_teacher"}},
	{role: "reward model", stems: []string{"reward_model", "reward_pretrain", "rm_model", "reward_backbone",
		"judge_model", "verifier_model", "scorer_model", "preference_model", "aesthetic_model"}},
	{role: "critic", stems: []string{"critic_model", "critic_pretrain", "value_model"}},
	{role: "reference", stems: []string{"ref_model", "reference_model", "ref_policy", "reference_policy", "sft_model"}},
	{role: "controlnet", stems: []string{"controlnet", "controlnet_model", "control_net", "t2i_adapter", "ip_adapter",
		"ip_adapter_model", "adapter_unet"}},
	{role: "discriminator", stems: []string{"discriminator", "discriminator_model", "lpips_model", "perceptual_model",
		"perceptual_loss_model"}},
	{role: "averaged copy of the weights", copies: true,
		stems: []string{"ema", "use_ema", "with_ema", "enable_ema", "model_ema", "ema_model", "ema_decay", "ema_rate",
			"ema_momentum",
			"model_ema_decay", "momentum_teacher", "teacher_momentum", "teacher_ema", "moco_m", "polyak", "swa",
			"use_swa"}},
	{role: "draft model", stems: []string{"draft_model", "assistant_model", "speculator_model", "retriever_model",
		"reranker_model", "generator_model", "cross_encoder_model"}},
}

// pathEndings stand behind a model's role in an option's name.
var pathEndings = []string{"_name_or_path", "_path", "_name", "_dir", "_folder", "_ckpt", "_checkpoint", "_weights",
	"_id", "_repo", "_file", "_arch"}

// countsSecondModels lists the frameworks whose readers know every such option, and which GPUs the model is on.
var countsSecondModels = []string{"openrlhf", "verl", "llamafactory"}

// readBesides notes the models that the script's arguments name beside the trained one, unless the framework's reader
// has noted them.
func (r *reader) readBesides() {
	if r.alone != "" || slices.Contains(countsSecondModels, r.family.framework) {
		return
	}
	words := r.job.ScriptArgs
	for i, word := range words {
		option, value, attached := strings.Cut(word, "=")
		if !attached && !strings.HasPrefix(word, "-") {
			continue
		}
		if !attached && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
			value = words[i+1]
		}
		role, name := besideRole(option, value)
		noted := func(b besides) bool { return name != "" && b.Name == name || name == "" && b.Role == role }
		if role == "" || slices.ContainsFunc(r.besides, noted) {
			continue
		}
		r.hold(role, Setting[string]{Value: name, Known: true, Origin: "command line " + option}, false, false)
		r.besides[len(r.besides)-1].uncounted = true
	}
}

// besideRole is the role and the name of the model that an option and its value mean; "" when they mean none.
func besideRole(option, value string) (role, name string) {
	word := option[strings.LastIndexByte(option, '.')+1:]
	word = strings.TrimPrefix(strings.ReplaceAll(strings.ToLower(strings.TrimLeft(word, "-+~")), "-", "_"),
		"pretrained_")
	for _, stem := range stemsOf(word) {
		for _, s := range besideShapes {
			switch {
			case !slices.Contains(s.stems, stem):
			case s.copies && !switchedOff(value):
				return s.role, ""
			case !s.copies && namesModel(value) && (!s.paths || strings.ContainsAny(value, "/.")):
				return s.role, value
			}
		}
	}
	return "", ""
}

// switchedOff tells the values that turn an option off.
func switchedOff(value string) bool {
	n, err := strconv.ParseFloat(value, 64)
	return err == nil && n == 0 || slices.Contains([]string{"none", "null", "false", "no", "off"},
		strings.ToLower(value))
}

// stemsOf is an option's name without what may stand behind the role: endings of paths, and the number of one of
// several.
func stemsOf(name string) []string {
	stems := []string{name}
	for again := true; again; {
		again = false
		for _, ending := range pathEndings {
			if short, cut := strings.CutSuffix(name, ending); cut && short != "" {
				name, again = short, true
				stems = append(stems, name)
			}
		}
	}
	return append(stems, strings.TrimRight(strings.TrimRight(name, "0123456789"), "_"))
}

// namesModel tells a model's name or path from what else may stand behind an option.
func namesModel(value string) bool {
	if _, unknown := shell.Unknown(value); unknown {
		return true
	}
	_, err := strconv.ParseFloat(value, 64)
	nothing := []string{"", "none", "null", "true", "false", "yes", "no", "on", "off", "~"}
	return err != nil && !strings.HasPrefix(value, "-") && !slices.Contains(nothing, strings.ToLower(value))
}
