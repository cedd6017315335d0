import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--trainer", default="trl")
parser.add_argument("--ppo_epochs", type=int, default=4)
parser.add_argument("--mini_batch_size", type=int, default=4)
parser.add_argument("--lr", type=float, default=1e-5)
args = parser.parse_args()

if args.trainer == "trl":
    from trl import PPOConfig, PPOTrainer

    trainer = PPOTrainer(args=PPOConfig(per_device_train_batch_size=64, learning_rate=args.lr))
else:
    from mylab.ppo import OwnPPO

    trainer = OwnPPO(args)
trainer.train()
