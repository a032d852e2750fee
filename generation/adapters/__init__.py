"""A tenant's own LoRA adapters: what a folder holds, who may use which, and how they come to the engines."""
