ARGS=( --num-layers 8
python pretrain_gpt.py
