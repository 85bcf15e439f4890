#!/bin/bash
#SBATCH --nodes=32
#SBATCH --gpus-per-node=8
# Worked example C of the launch notes: Qwen3-235B on 256 H100, BF16, EP overlap, embedding and loss counted as layers; older spellings.
export CUDA_DEVICE_MAX_CONNECTIONS=32 NCCL_GRAPH_REGISTER=0 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
srun --ntasks=256 bash -c "python pretrain_gpt.py \
    --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 8 --num-layers-per-virtual-pipeline-stage=3 \
    --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split \
    --expert-model-parallel-size 32 --expert-tensor-parallel-size 1 --micro-batch-size 1 --global-batch-size 2048 --seq-length 4096 \
    --num-layers 94 --hidden-size 4096 --ffn-hidden-size 12288 --num-attention-heads 64 --kv-channels 128 --group-query-attention --num-query-groups 4 --qk-layernorm \
    --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --use-rotary-position-embeddings --max-position-embeddings 4096 \
    --hidden-dropout 0 --attention-dropout 0 \
    --num-experts 128 --moe-ffn-hidden-size 1536 --moe-router-topk 8 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-3 --moe-router-dtype fp32 \
    --moe-grouped-gemm --moe-permute-fusion --moe-router-fusion --moe-token-dispatcher-type flex --moe-enable-deepep --moe-deepep-num-sms 24 \
    --overlap-moe-expert-parallel-comm --delay-wgrad-compute --recompute-granularity selective --recompute-modules moe_act layernorm \
    --external-cuda-graph --cuda-graph-scope moe_router moe_preprocess --tp-comm-overlap --bf16"
