/* c_tests FILE MODELS: runs the tests of tests/c/FILE.c; c_models has written the folder MODELS. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static atomic_int checks, failed_checks;

int failures(void) { return failed_checks; }

void check(int is_true, const char* text, const char* file, int line) {
  ++checks;
  if (is_true) return;
  ++failed_checks;
  fprintf(stderr, "%s:%d: %s\n", file, line, text);
}

void check_status(etude_status status, etude_status expected, const char* text, const char* file, int line) {
  check(status == expected, text, file, line);
  if (status != expected)
    fprintf(stderr, "  is %d, not %d: %s\n", (int)status, (int)expected, etude_last_error());
}

void check_error(etude_status status, etude_status expected, const char* part, const char* text,
                 const char* file, int line) {
  check_status(status, expected, text, file, line);
  if (status == ETUDE_OK) return;
  const int is_there = strstr(etude_last_error(), part) != NULL;
  check(is_there, text, file, line);
  if (!is_there) fprintf(stderr, "  '%s'\n  isn't in '%s'\n", part, etude_last_error());
}

void check_near(double value, double expected, double tolerance, const char* text, const char* file,
                int line) {
  const int is_near = fabs(value - expected) <= tolerance * (1 + fabs(expected));
  check(is_near, text, file, line);
  if (!is_near) fprintf(stderr, "  is %.9g, not %.9g\n", value, expected);
}

/* What a test leaves behind. */
static char* texts[1000];
static int text_count;
static char* folders[100];
static int folder_count;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* some tests have two threads */

static char* keep(char* text) {
  pthread_mutex_lock(&mutex);
  if (!text || text_count == 1000) abort();
  texts[text_count++] = text;
  pthread_mutex_unlock(&mutex);
  return text;
}

const char* formatted(const char* format, ...) {
  char* text = NULL;
  va_list parts;
  va_start(parts, format);
  if (vasprintf(&text, format, parts) < 0) abort();
  va_end(parts);
  return keep(text);
}

const char* new_folder(void) {
  char* folder = keep(strdup("/tmp/etude_c_XXXXXX"));
  pthread_mutex_lock(&mutex);
  if (!mkdtemp(folder) || folder_count == 100) abort();
  folders[folder_count++] = folder;
  pthread_mutex_unlock(&mutex);
  return folder;
}

const char* path_in(const char* folder, const char* name) { return formatted("%s/%s", folder, name); }

static int remove_one(const char* path, const struct stat* status, int kind, struct FTW* place) {
  (void)status, (void)kind, (void)place;
  return remove(path);
}

static void clean(void) {
  while (folder_count > 0) nftw(folders[--folder_count], remove_one, 16, FTW_DEPTH | FTW_PHYS);
  while (text_count > 0) free(texts[--text_count]);
}

int exists(const char* path) { return access(path, F_OK) == 0; }

char* read_bytes(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  if (!file) return NULL;
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  rewind(file);
  char* bytes = malloc(*size + 1);
  if (!bytes || fread(bytes, 1, *size, file) != *size) abort();
  bytes[*size] = '\0';
  fclose(file);
  return bytes;
}

void write_bytes(const char* path, const char* bytes, size_t size) {
  FILE* file = fopen(path, "wb");
  if (!file || fwrite(bytes, 1, size, file) != size) abort();
  fclose(file);
}

const char linear[] = MODELS "/linear_by_torch_2_13.pt2";
static const char* models;

const char* model_file(const char* name) { return path_in(models, name); }

struct line first_line(void) {
  struct line line = {{{0, 0.125, 0.25}, {0.375, 0.5, 0.625}}, {0.5, -0.25}};
  return line;
}

void example_batch(int i, float* x, float* y) {
  for (int k = 0; k < 12; ++k) x[k] = (float)sin(1 + 3 * i + 0.7 * k);
  for (int k = 0; k < 8; ++k) y[k] = (float)cos(2 + 5 * i + 0.9 * k);
}

double line_loss(const struct line* line, const float* x, const float* y, struct line* gradient) {
  double loss = 0;
  memset(gradient, 0, sizeof *gradient);
  for (int n = 0; n < 4; ++n)
    for (int j = 0; j < 2; ++j) {
      double output = line->b[j];
      for (int k = 0; k < 3; ++k) output += line->w[j][k] * (double)x[3 * n + k];
      const double error = output - (double)y[2 * n + j];
      loss += error * error / 8;
      for (int k = 0; k < 3; ++k) gradient->w[j][k] += error * (double)x[3 * n + k] / 4;
      gradient->b[j] += error / 4;
    }
  return loss;
}

double line_step(struct line* line, int i, double learning_rate) {
  float x[12], y[8];
  struct line gradient;
  example_batch(i, x, y);
  const double loss = line_loss(line, x, y, &gradient);
  for (int j = 0; j < 2; ++j) {
    for (int k = 0; k < 3; ++k) line->w[j][k] -= learning_rate * gradient.w[j][k];
    line->b[j] -= learning_rate * gradient.b[j];
  }
  return loss;
}

etude_tensor matrix(const char* name, void* data, int32_t dtype, int64_t rows, int64_t columns) {
  static _Thread_local int64_t shapes[64][2];
  static _Thread_local int next;
  int64_t* shape = shapes[next++ % 64];
  shape[0] = rows, shape[1] = columns;
  etude_tensor tensor = {0};
  tensor.name = name;
  tensor.data = data;
  tensor.shape = shape;
  tensor.rank = 2;
  tensor.dtype = dtype;
  return tensor;
}

const etude_tensor* batch(int i) {
  static float x[12], y[8];
  static etude_tensor tensors[2];
  example_batch(i, x, y);
  tensors[0] = matrix("input", x, ETUDE_FLOAT32, 4, 3);
  tensors[1] = matrix("labels", y, ETUDE_FLOAT32, 4, 2);
  return tensors;
}

/* The folder of another process's training. */
static const char* folder_of_this;

void set(etude_options* options, const char* name, const char* value) {
  OK(etude_options_set(options, name, value));
}

etude_options* descent(int max_steps) {
  etude_options* options = NULL;
  OK(etude_options_create(&options));
  set(options, "output_dir", folder_of_this ? folder_of_this : new_folder());
  set(options, "optim", "sgd");
  set(options, "learning_rate", "0.25");
  set(options, "lr_scheduler_type", "constant");
  set(options, "max_grad_norm", "0");
  set(options, "loss", "mse");
  set(options, "save_strategy", "no");
  set(options, "max_steps", formatted("%d", max_steps));
  return options;
}

etude_trainer* made(const char* model, etude_options* options) {
  etude_trainer* trainer = NULL;
  OK(etude_trainer_create(model, options, &trainer));
  if (!trainer) exit(1);
  etude_options_destroy(options);
  return trainer;
}

double number(etude_trainer* trainer, const char* name) {
  double value = NAN;
  OK(etude_trainer_number(trainer, name, &value));
  return value;
}

void steps(etude_trainer* trainer, int first, int last) {
  for (int i = first; i < last; ++i) OK(etude_trainer_step(trainer, batch(i), 2, NULL));
}

void read_line(etude_trainer* trainer, float line[8]) {
  etude_tensor weight, bias;
  OK(etude_trainer_parameter(trainer, "weight", &weight));
  OK(etude_trainer_parameter(trainer, "bias", &bias));
  memcpy(line, weight.data, 6 * sizeof *line);
  memcpy(line + 6, bias.data, 2 * sizeof *line);
}

void check_line(etude_trainer* trainer, const struct line* expected) {
  float line[8];
  read_line(trainer, line);
  for (int k = 0; k < 6; ++k) NEAR(line[k], expected->w[k / 3][k % 3]);
  for (int k = 0; k < 2; ++k) NEAR(line[6 + k], expected->b[k]);
}

static const char* program;

int again(const char* what, const char* argument, int* output) {
  int ends[2];
  if (pipe(ends)) abort();
  const int child = fork();
  if (child < 0) abort();
  if (child == 0) {
    dup2(ends[1], 1);
    close(ends[0]);
    close(ends[1]);
    execl(program, program, what, argument, models, (char*)NULL);
    _exit(127);
  }
  close(ends[1]);
  *output = ends[0];
  return child;
}

extern TESTS(events);
extern TESTS(gradients);
extern TESTS(misuse);
extern TESTS(options);
extern TESTS(processes);
extern TESTS(quiet);
extern TESTS(state);
extern TESTS(steps);
extern TESTS(tensors);
extern TESTS(training);
/* What tests run as another process. */
int quiet_training(const char* folder);
int rank_that_loses(const char* folder);
int rank_that_trains(const char* folder);
int stepped_with_field(const char* folder);

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    const struct test* tests;
  } files[] = {{"events", events_tests},    {"gradients", gradients_tests}, {"misuse", misuse_tests},
               {"options", options_tests},  {"processes", processes_tests}, {"quiet", quiet_tests},
               {"state", state_tests},      {"steps", steps_tests},         {"tensors", tensors_tests},
               {"training", training_tests}};
  static const struct {
    const char* name;
    int (*run)(const char* folder);
  } others[] = {{"quiet_training", quiet_training},
                {"rank_that_loses", rank_that_loses},
                {"rank_that_trains", rank_that_trains},
                {"stepped_with_field", stepped_with_field}};
  if (argc < 3) return 2;
  program = argv[0];
  models = argv[argc - 1];
  for (size_t i = 0; i < sizeof others / sizeof *others; ++i)
    if (!strcmp(argv[1], others[i].name)) {
      folder_of_this = argv[2];
      return others[i].run(folder_of_this);
    }
  for (size_t i = 0; i < sizeof files / sizeof *files; ++i) {
    if (strcmp(argv[1], files[i].name)) continue;
    for (const struct test* test = files[i].tests; test->name; ++test) {
      const int failed_before = failed_checks, checked_before = checks;
      test->run();
      clean();
      if (failed_checks > failed_before || checks == checked_before)
        fprintf(stderr, "FAILED: %s\n", test->name);
      failed_checks += checks == checked_before;
    }
  }
  printf("%d checks, %d failures\n", checks, failed_checks);
  return checks == 0 || failed_checks > 0;
}
