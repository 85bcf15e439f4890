#!/bin/bash
# Worked example A of the launch notes: Mixtral-8x7B on 64 H100, BF16, TP 1 PP 4 VPP 8 EP 8.
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nproc_per_node 8 --nnodes 8 --node_rank $NODE_RANK pretrain_gpt.py
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1
  --context-parallel-size 1 --expert-model-parallel-size 8 --expert-tensor-parallel-size 1
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
  --micro-batch-size 1 --global-batch-size 256 --seq-length 4096 --max-position-embeddings 4096
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8
  --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope
  --num-experts 8 --moe-router-topk 2 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2
  --moe-grouped-gemm --moe-token-dispatcher-type alltoall --moe-permute-fusion --bf16
