# Worked example B of the launch notes, as arrays: DeepSeek-V3 on 1024 H100, blockwise FP8, EP overlap.
TP=${TP:-2}
NNODES=$((1024 / 8))
export CUDA_DEVICE_MAX_CONNECTIONS=32 NVTE_FWD_LAYERNORM_SM_MARGIN=24 NVTE_BWD_LAYERNORM_SM_MARGIN=24 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
PARALLEL=(
  --tensor-model-parallel-size $TP --sequence-parallel   # TP with sequence parallelism
  --pipeline-model-parallel-size 8 --pipeline-model-parallel-layout "Et|(tt|)*30mL"
  --expert-model-parallel-size 64 --expert-tensor-parallel-size 1
)
BATCH="--micro-batch-size 1 --global-batch-size 8192 --seq-length 4096"
MODEL=(--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --multi-latent-attention
  --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 --qk-layernorm --kv-channels 128
  --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope
  --hidden-dropout 0 --attention-dropout 0.0)
MODEL+=(--num-experts 256 --moe-layer-freq "([0]*3+[1]*58)" --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048
  --moe-router-topk 8 --moe-router-num-groups 8 --moe-router-group-topk 4 --moe-router-topk-scaling-factor 2.5
  --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-4
  --moe-router-dtype fp32 --moe-grouped-gemm --moe-permute-fusion --moe-router-fusion)
if [[ ${TP} -gt 1 && -n "$BATCH" ]]; then
  MODEL+=(--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep)
else
  MODEL+=(--moe-token-dispatcher-type allgather)
fi
[ "$TP" == 1 ] && MODEL+=(--tp-comm-overlap)
LOW='--bf16 --fp8-format e4m3 --fp8-recipe blockwise --fp8-param-gather --moe-router-padding-for-quantization'
torchrun --nnodes $NNODES --nproc_per_node 8 pretrain_gpt.py "${PARALLEL[@]}" $BATCH ${MODEL[@]} \
  --overlap-moe-expert-parallel-comm --delay-wgrad-compute --recompute-granularity selective --recompute-modules mla_up_proj mlp \
  --mtp-num-layers 1 --mtp-loss-scaling-factor 0.1 --cross-entropy-loss-fusion --cross-entropy-fusion-impl native $LOW \
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
  --use-precision-aware-optimizer --main-grads-dtype fp32 --main-params-dtype fp32 --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16
