python pretrain_gpt.py  --hidden-size 1024 --num-attention-heads 8 --micro-batch-size 1 --global-batch-size 8 --seq-length 2048 --max-position-embeddings 2048 --vocab-size 32000 --bf16
