/* examples/multiply.c - libmoesim_lcma as a matrix multiplication: one that decides by itself, one with a scheme and a
 * limited workspace. cc multiply.c $(pkg-config --cflags --libs moesim_lcma) -lm */
#include <math.h>
#include <moesim_lcma.h>
#include <stdio.h>
#include <stdlib.h>

enum { M = 300, N = 200, K = 250 };

int main(void) {
  char why[200];
  MsLcma *lcma = ms_lcma_new(NULL, 1, why, sizeof why);
  if (!lcma) {
    printf("%s\n", why);
    return 4;
  }
  float *a = malloc(sizeof(float) * M * K), *b = malloc(sizeof(float) * K * N), *c = malloc(sizeof(float) * M * N);
  for (int i = 0; i < M * K; i++) a[i] = (float)(i % 17 - 8) / 8;
  for (int i = 0; i < K * N; i++) b[i] = (float)(i % 13 - 6) / 8;
  const char *plans[] = {NULL, "strassen*strassen"};
  double worst = 0;
  for (int p = 0; p < 2; p++) {
    ms_lcma_set_plan(lcma, plans[p]);
    ms_lcma_set_workspace_limit(lcma, 512 * 1024);
    if (ms_lcma_sgemm(lcma, 'N', 'N', M, N, K, 1, a, K, b, N, 0, c, N) != MS_LCMA_OK) return 1;
    printf("%s: rounding errors up to %g times those of the definition\n", ms_lcma_plan(lcma),
           ms_lcma_error_growth(lcma));
    for (int i = 0; i < M; i++)
      for (int j = 0; j < N; j++) {
        double sum = 0;
        for (int l = 0; l < K; l++) sum += (double)a[i * K + l] * (double)b[l * N + j];
        worst = fmax(worst, fabs(sum - (double)c[i * N + j]));
      }
  }
  printf("largest error %g\n", worst);
  ms_lcma_free(lcma);
  free(a);
  free(b);
  free(c);
  return worst < 1e-3 ? 0 : 1;
}
