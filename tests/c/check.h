/* A small test framework, and what the tests share. */
#ifndef CHECK_H
#define CHECK_H

#include <etude.h>
#include <stddef.h>
#include <stdint.h>

struct test {
  const char* name;
  void (*run)(void);
};

/* The tests of a file, ended by a null name. */
#define TESTS(file) const struct test file##_tests[]

void check(int is_true, const char* text, const char* file, int line);
void check_status(etude_status status, etude_status expected, const char* text, const char* file, int line);
void check_error(etude_status status, etude_status expected, const char* part, const char* text,
                 const char* file, int line);
void check_near(double value, double expected, double tolerance, const char* text, const char* file,
                int line);

#define CHECK(condition) check(condition, #condition, __FILE__, __LINE__)
#define OK(call) check_status(call, ETUDE_OK, #call, __FILE__, __LINE__)
/* The call must fail with this status, and etude_last_error must contain this text. */
#define FAILS(call, status, part) check_error(call, status, part, #call, __FILE__, __LINE__)
/* The number of checks that have failed. */
int failures(void);
/* Equal up to the rounding of float32. */
#define NEAR(value, expected) check_near(value, expected, 2e-6, #value, __FILE__, __LINE__)

/* A new empty folder, which is removed at the end of the test. */
const char* new_folder(void);
/* The path of a file in a folder, valid until the end of the test. */
const char* path_in(const char* folder, const char* name);
const char* formatted(const char* format, ...);
int exists(const char* path);
/* The bytes of a file, to be freed; the number of bytes in *size. Null if it can't be read. */
char* read_bytes(const char* path, size_t* size);
void write_bytes(const char* path, const char* bytes, size_t size);

/* y = x W^T + b with W = [[0, 1, 2], [3, 4, 5]] / 8 and b = [0.5, -0.25], for inputs [N, 3]. */
extern const char linear[];
/* The path of a file that c_models has written: dropout.pt2 has the inputs a [N, 2] and b [N, 2], and its
 * output is dropout(a * w) + b with one weight w = 2; newer.pt2 is the same in a format of the future. */
const char* model_file(const char* name);

/* That linear model by hand, in double precision. */
struct line {
  double w[2][3], b[2];
};
struct line first_line(void);
/* The examples of batch i: x [4, 3] and y [4, 2]. */
void example_batch(int i, float* x, float* y);
/* The mean squared error of a batch, and its gradients. */
double line_loss(const struct line* line, const float* x, const float* y, struct line* gradient);
/* A step of gradient descent on a batch; returns the loss. */
double line_step(struct line* line, int i, double learning_rate);

/* A contiguous tensor. */
etude_tensor matrix(const char* name, void* data, int32_t dtype, int64_t rows, int64_t columns);
/* x and y of example_batch, as tensors that share two arrays; the same arrays in each call. */
const etude_tensor* batch(int i);

/* Options for the linear model by plain gradient descent with a rate of 0.25 and the loss mse; output_dir is
 * a new folder. */
etude_options* descent(int max_steps);
void set(etude_options* options, const char* name, const char* value);
etude_trainer* made(const char* model, etude_options* options);
double number(etude_trainer* trainer, const char* name);
/* Steps on batches first, ..., last - 1. */
void steps(etude_trainer* trainer, int first, int last);
/* The weights of the linear model. */
void read_line(etude_trainer* trainer, float line[8]);
void check_line(etude_trainer* trainer, const struct line* expected);

/* Runs the program again with these two arguments, as another process. Returns its id; its output comes from
 * *pipe. */
int again(const char* what, const char* argument, int* pipe);

#endif
