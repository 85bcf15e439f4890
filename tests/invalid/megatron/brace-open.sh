TP=${X:-1
python pretrain_gpt.py
