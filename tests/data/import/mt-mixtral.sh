#!/bin/bash
# The runner form of MT-MegatronLM: sizes from the command line, hosts from a file, arrays by subject.
set -u
  WORK_HOME=$1
  EXPNAME=$3
  HOSTFILE=$4
  TP_SIZE=$6
  PP_SIZE=$7
  EP_SIZE=$8
  MICRO_BATCH_SIZE=$9
  GLOBAL_BATCH_SIZE=${10}
set +u
export ACCELERATOR_BACKEND="musa"
export CUDA_DEVICE_MAX_CONNECTIONS=1
if [ ! -d "$WORK_HOME/build" ]; then
  cd "$WORK_HOME" && python setup.py build_ext --inplace
fi
for host in $(cat $HOSTFILE); do
  echo "$host"
done
export NUM_NODES=$(cat $HOSTFILE | wc -l)
export MASTER_ADDR=$(head -n1 $HOSTFILE | awk '{print $1;}')
DISTRIBUTED_ARGS=(
    --nproc_per_node 8
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR
)
MODEL_ARGS=(
    --num-layers 32  # of 32
    --hidden-size 4096
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length 4096
    --max-position-embeddings 4096
    --norm-epsilon 1e-5
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --disable-bias-linear
    --ffn-hidden-size 14336
    --position-embedding-type rope
    --swiglu
    --normalization RMSNorm
    --untie-embeddings-and-output-weights
    --vocab-size 32000
)
TRAINING_ARGS=(
    --micro-batch-size $MICRO_BATCH_SIZE
    --global-batch-size $GLOBAL_BATCH_SIZE
    --train-samples 24414062
    --use-mcore-models
    --no-gradient-accumulation-fusion
    --use-distributed-optimizer
    --use-flash-attn
    --sequence-parallel
    --recompute-granularity full
    --recompute-method block
    --recompute-num-layers 0
    --transformer-impl local
)
MODEL_PARALLEL_ARGS=(
	--tensor-model-parallel-size $TP_SIZE
	--pipeline-model-parallel-size $PP_SIZE
)
MIXED_PRECISION_ARGS=(
    --bf16
    --attention-softmax-in-fp32
    --no-masked-softmax-fusion
    --accumulate-allreduce-grads-in-fp32
)
MOE_ARGS=(
    --num-experts 8
    --expert-model-parallel-size $EP_SIZE
    --moe-token-dispatcher-type alltoall
    --moe-router-load-balancing-type aux_loss
    --moe-router-topk 2
    --moe-aux-loss-coeff 1e-2
    --moe-z-loss-coeff 1e-3
    --moe-expert-capacity-factor 4.0
)
cmd="torchrun ${DISTRIBUTED_ARGS[@]} $WORK_HOME/pretrain_mixtral.py \
        ${MODEL_ARGS[@]} \
        ${TRAINING_ARGS[@]}
        ${MODEL_PARALLEL_ARGS[@]} \
        ${MIXED_PRECISION_ARGS[@]}
        ${MOE_ARGS[@]}
    "
echo $cmd
eval $cmd
