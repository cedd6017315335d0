package preflight

import (
	"strings"
	"testing"

	"oomguard/preflight/estimate"
	"oomguard/preflight/job"
)

// foreignJobs are trainings by programs that are not known here: own flags, command, and very roughly the GiB that a
// GPU then takes, from what such trainings usually show (0: nobody knows).
var foreignJobs = []struct {
	flags, command string
	truth          float64
}{
	{"params=2.6M micro-batch=16", "python train.py --data coco.yaml --weights yolov8n.pt --batch 16 --imgsz 640", 4},
	{"params=44M", "python tools/train.py configs/faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py --amp", 6},
	{"params=25.6M micro-batch=192 precision=fp32 optimizer=sgd_momentum method=full",
		"torchrun --nproc-per-node=8 main.py -a resnet50 -b 192 imagenet", 12},
	{"params=304M micro-batch=64 precision=fp16-mixed optimizer=adamw method=full",
		"torchrun --nproc_per_node=8 main_pretrain.py --model mae_vit_large_patch16 --batch_size 64", 20},
	{"params=21M", "torchrun --nproc_per_node=8 main_dino.py --arch vit_small --momentum_teacher 0.996 " +
		"--batch_size_per_gpu 64", 15},
	{"params=41M micro-batch=2", "python -m torch.distributed.launch --nproc_per_node=8 --use_env main.py " +
		"--coco_path /coco", 9},
	{"params=88M micro-batch=128", "torchrun --nproc_per_node 8 main.py --cfg " +
		"configs/swin/swin_base_patch4_window7_224.yaml --batch-size 128", 25},
	{"", "python train_net.py --num-gpus 8 --config-file COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_1x.yaml", 0},
	{"params=860M micro-batch=4", "accelerate launch train_text_to_image.py --resolution 512 --train_batch_size 4 " +
		"--use_ema", 22},
	{"params=12B method=lora lora-r=16 precision=bf16-true",
		"accelerate launch --num_processes 1 train_dreambooth_lora_flux.py --rank 16", 40},
	{"params=2.6B method=full precision=bf16",
		"accelerate launch train_text_to_image_sdxl.py --pretrained_vae_model_name_or_path " +
			"madebyollin/sdxl-vae-fp16-fix", 60},
	{"params=12B method=lora", "accelerate launch flux_train_network.py --clip_l clip_l.safetensors --t5xxl " +
		"t5xxl.safetensors --ae ae.safetensors --network_dim 16", 24},
	{"params=675M", "torchrun --nnodes=1 --nproc_per_node=8 train.py --model DiT-XL/2 --global-batch-size 256 --vae ema", 30},
	{"params=1.4B activations=10GiB precision=bf16 optimizer=adamw method=full",
		"accelerate launch train_controlnet.py --controlnet_model_name_or_path a/b", 0},
	{"params=56M", "torchrun --nproc_per_node=8 train.py --outdir=runs --cond=1 --arch=ddpmpp --batch=512 --ema=0.5",
		12},
	{"params=395M", "python main.py --base configs/latent-diffusion/celebahq-ldm-vq-4.yaml -t --gpus 0,", 20},
	{"params=317M", "fairseq-hydra-train task.data=/data --config-dir config/pretraining --config-name " +
		"wav2vec2_large_librivox", 0},
	{"params=120M micro-batch=16", "python examples/asr/asr_ctc/speech_to_text_ctc_bpe.py model.train_ds.batch_size=16",
		14},
	{"params=83M micro-batch=32", "python train_ms.py -c configs/vctk_base.json -m vctk", 12},
	{"params=1B precision=bf16-mixed",
		"python train.py hparams/train.yaml --speech_encoder_path facebook/wav2vec2-large", 0},
	{"params=1.7M micro-batch=1024", "python cleanrl/ppo_atari_envpool.py --env-id Breakout-v5 --num-envs 8", 0},
	{"params=400K", "python train.py task=Humanoid num_envs=4096 headless=True", 5},
	{"params=1.5B precision=bf16 optimizer=adamw",
		"python my_rlhf.py --reward_model OpenAssistant/reward-model-deberta-v3-large-v2 --ref_model gpt2-xl", 0},
	{"params=7.5B method=lora lora-r=32 precision=bf16-true",
		"torchrun --standalone --nproc-per-node 1 vla-scripts/finetune.py --vla_path openvla/openvla-7b " +
			"--batch_size 16 --lora_rank 32", 72},
	{"params=450M", "python lerobot/scripts/train.py policy=diffusion dataset_repo_id=lerobot/pusht " +
		"policy.vision_backbone=resnet18", 10},
	{"params=80M micro-batch=8", "python imitate_episodes.py --policy_class ACT --chunk_size 100 --batch_size 8", 8},
	{"model=FacebookAI/roberta-large",
		"python train_bi_encoder.py --model_name FacebookAI/roberta-large --train_batch_size 256", 60},
	{"model=FacebookAI/roberta-large micro-batch=256",
		"torchrun --nproc_per_node 8 -m bge.run --negatives_cross_device --temperature 0.02", 70},
	{"model=FacebookAI/roberta-base micro-batch=64 seq-len=256 precision=fp32",
		"python train_dense_encoder.py train=biencoder_nq --teacher_model ce/big", 0},
	{"params=124M", "torchrun --standalone --nproc_per_node=1 train.py config/train_gpt2.py --batch_size=64", 70},
	{"model=meta-llama/Llama-3.1-8B micro-batch=1", "torchrun --nproc-per-node=1 my_finetune.py --rank 16", 19},
}

// TestForeignJobsNeverFit: of a program that is not known nothing is said to fit unless all that decides was given;
// what is said to be needed at least or at most is true.
func TestForeignJobsNeverFit(t *testing.T) {
	const gib80 = 80 << 30
	for _, tt := range foreignJobs {
		flags := map[string]string{}
		for word := range strings.FieldsSeq(tt.flags) {
			name, value, _ := strings.Cut(word, "=")
			flags[name] = value
		}
		in := estimate.Input{Hardware: estimate.Hardware{Kind: "cuda", TotalBytes: gib80, Count: 8, ContextBytes: -1,
			NCCLBytes: -1}, Options: estimate.DefaultOptions()}
		if flags["activations"] != "" {
			in.Options.ActivationBytes = 10 << 30
		}
		delete(flags, "activations")
		in.Job = job.Read(job.Sources{Argv: strings.Fields(tt.command), Flags: flags, Dir: t.TempDir(), GPUs: 8})
		if in.Model = in.Job.Architecture; in.Model == nil {
			continue // no estimate, no number
		}
		e, err := estimate.Run(in)
		if err != nil {
			t.Errorf("%s: %v", tt.command, err)
			continue
		}
		truth := int64(tt.truth * (1 << 30))
		most, known := e.Most()
		if e.Fits != nil && *e.Fits || truth > 0 && (truth < e.Least() || known && truth > most) {
			t.Errorf("%s: fits %v, %.2f GiB at least, at most %.2f (%v), truth %.0f; lacks %q", tt.command, e.Fits,
				float64(e.Least())/(1<<30), float64(most)/(1<<30), known, tt.truth, e.Lacks())
		}
		if e.Fits == nil && (e.Lacks() == "" || e.Give() == "") {
			t.Errorf("%s: no answer, and no word of why", tt.command)
		}
	}
}
