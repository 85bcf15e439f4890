# plots/validation.gp - predicted against measured step time, a colour for each GPU.
# gnuplot -e "csv='rows.csv'; out='plot.svg'; gpus='a100-sxm-80g h100-sxm'" plots/validation.gp
# The CSV is the one that `moesim validate --csv` writes: gpu in column 3, metric in 8, measured in 9, predicted in 10.
if (out[strlen(out)-3:*] eq ".png") { set terminal pngcairo size 1000,900 } else { set terminal svg size 1000,900 dynamic background rgb 'white' }
set output out
set datafile separator comma
set logscale xy
set xlabel "measured step time, s"
set ylabel "predicted step time, s"
set key top left
set grid
seconds(metric, value) = (metric eq "step_time" ? value : NaN)
stats csv skip 1 using (seconds(strcol(8), $9)) nooutput name "M"
set xrange [M_min * 0.7 : M_max * 1.4]
set yrange [M_min * 0.7 : M_max * 1.4]
plot x with lines lc rgb "black" title "equal", \
     1.1 * x with lines dt 2 lc rgb "gray40" title "±10 %", 0.9 * x with lines dt 2 lc rgb "gray40" notitle, \
     for [g in gpus] csv skip 1 using (strcol(3) eq g ? seconds(strcol(8), $9) : NaN):10 with points pt 7 ps 0.6 title g noenhanced
