from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_atari_env

env = make_atari_env("PongNoFrameskip-v4", n_envs=16)
model = PPO("CnnPolicy", env, n_steps=128, batch_size=256, n_epochs=4, learning_rate=2.5e-4, verbose=1)
model.learn(total_timesteps=10_000_000)
