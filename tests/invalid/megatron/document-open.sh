cat <<EOF
--num-layers 8
