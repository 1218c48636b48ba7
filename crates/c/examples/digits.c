/* Checks, simplifies and runs a model that reads digits.
 *
 * cc digits.c $(pkg-config --cflags --libs sardonyx) && ./a.out digits.onnx
 */
#include <sardonyx.h>
#include <stdio.h>

/* Prints an error and frees it. */
static int report_error(SardonyxError *error) {
  fprintf(stderr, "error %d: %s\n", sardonyx_error_code(error), sardonyx_error_message(error));
  if (sardonyx_error_place(error)) fprintf(stderr, "  at %s\n", sardonyx_error_place(error));
  if (sardonyx_error_help(error)) fprintf(stderr, "  help: %s\n", sardonyx_error_help(error));
  sardonyx_error_free(error);
  return 1;
}

static int run(const SardonyxModel *model) {
  SardonyxSession *session = NULL;
  SardonyxTensor *image = NULL, *result = NULL;
  float pixels[64];
  const int64_t dims[] = {1, 1, 8, 8};
  for (int i = 0; i < 64; ++i) pixels[i] = (float)i / 64;
  SardonyxError *error = sardonyx_session_new(model, 0, &session);
  if (!error) error = sardonyx_tensor_new(SARDONYX_TYPE_FLOAT, dims, 4, pixels, sizeof pixels, &image);
  if (!error) {
    const char *names[] = {sardonyx_session_input_name(session, 0)};
    const SardonyxTensor *inputs[] = {image};
    error = sardonyx_session_run(session, names, inputs, 1, &result, 1);
  }
  if (!error) {
    const float *scores = sardonyx_tensor_elements(result);
    size_t best = 0;
    for (size_t i = 1; i < sardonyx_tensor_count(result); ++i)
      if (scores[i] > scores[best]) best = i;
    printf("%s: %zu\n", sardonyx_session_output_name(session, 0), best);
  }
  sardonyx_tensor_free(result);
  sardonyx_tensor_free(image);
  sardonyx_session_free(session);
  return error ? report_error(error) : 0;
}

int main(int count, char **arguments) {
  if (count != 2) return 2;
  SardonyxModel *model = NULL, *simplified = NULL;
  SardonyxReport *report = NULL;
  SardonyxError *error = sardonyx_model_open(arguments[1], &model);
  if (!error) error = sardonyx_model_check(model, true, &report);
  if (!error) error = sardonyx_model_simplify(model, &simplified);
  if (error) {
    sardonyx_report_free(report);
    sardonyx_model_free(model);
    return report_error(error);
  }
  size_t errors = 0;
  for (size_t i = 0; i < sardonyx_report_count(report); ++i)
    if (sardonyx_report_severity(report, i) == SARDONYX_SEVERITY_ERROR)
      printf("%zu. %s: %s: %s\n", ++errors, sardonyx_report_code(report, i), sardonyx_report_place(report, i),
             sardonyx_report_fact(report, i));
  printf("errors: %zu; nodes: %zu, simplified: %zu\n", errors, sardonyx_model_node_count(model),
         sardonyx_model_node_count(simplified));
  int status = run(simplified);
  sardonyx_model_free(simplified);
  sardonyx_report_free(report);
  sardonyx_model_free(model);
  return status;
}
