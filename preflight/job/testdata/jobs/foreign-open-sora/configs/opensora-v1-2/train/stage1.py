dtype = "bf16"
grad_checkpoint = True
plugin = "zero2"
sp_size = 1
model = dict(type="STDiT3-XL/2", from_pretrained=None, qk_norm=True, enable_flash_attn=True)
batch_size = None
lr = 1e-4
