/* Several processes of one training, with the variables of torchrun. */
#define _DEFAULT_SOURCE
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* A free port below those that are used for outgoing connections. */
static int free_port(void) {
  srand((unsigned)getpid());
  for (;;) {
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    const int port = 10000 + rand() % 22000;
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)port);
    const int socket_ = socket(AF_INET, SOCK_STREAM, 0);
    const int is_free = socket_ >= 0 && bind(socket_, (struct sockaddr*)&address, sizeof address) == 0;
    close(socket_);
    if (is_free) return port;
  }
}

/* Begins both ranks of a training that runs `what`. */
static void begin_ranks(const char* what, const char* folder, int children[2], int outputs[2]) {
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", formatted("%d", free_port()), 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  for (int rank = 0; rank < 2; ++rank) {
    setenv("RANK", formatted("%d", rank), 1);
    setenv("LOCAL_RANK", formatted("%d", rank), 1);
    children[rank] = again(what, folder, &outputs[rank]);
  }
  static const char* const names[] = {"RANK",        "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                      "MASTER_ADDR", "MASTER_PORT"};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) unsetenv(names[i]);
}

static int rank_of_this(void) { return atoi(getenv("RANK")); }

/* Each rank trains on its own batches, and evaluates on its own part of a dataset. */
int rank_that_trains(const char* folder) {
  const int rank = rank_of_this();
  etude_options* options = descent(6);
  set(options, "output_dir", folder);
  etude_trainer* trainer = made(linear, options);
  CHECK(number(trainer, "rank") == rank);
  CHECK(number(trainer, "world_size") == 2);
  OK(etude_trainer_begin(trainer, NULL));
  struct line line = first_line();
  for (int i = 0; i < 6; ++i) {
    OK(etude_trainer_step(trainer, batch(2 * i + rank), 2, NULL));
    struct line both[2] = {line, line};
    for (int each = 0; each < 2; ++each) line_step(&both[each], 2 * i + each, 0.25);
    for (int j = 0; j < 2; ++j) {
      for (int k = 0; k < 3; ++k) line.w[j][k] = (both[0].w[j][k] + both[1].w[j][k]) / 2;
      line.b[j] = (both[0].b[j] + both[1].b[j]) / 2;
    }
    check_line(trainer, &line);
  }
  /* A single rank may predict. */
  if (rank == 1) OK(etude_trainer_predict(trainer, batch(0), 1, NULL, 0));
  OK(etude_trainer_finish(trainer));
  double loss = 0;
  for (int each = 0; each < 2; ++each) {
    float x[12], y[8];
    struct line gradient;
    example_batch(each, x, y);
    loss += line_loss(&line, x, y, &gradient) / 2;
  }
  etude_dataset* dataset = NULL;
  OK(etude_dataset_create(batch(rank), 2, &dataset));
  OK(etude_dataset_set_divided(dataset, 1));
  OK(etude_trainer_evaluate(trainer, dataset));
  NEAR(number(trainer, "eval_loss"), loss);
  etude_dataset_destroy(dataset);
  etude_trainer_destroy(trainer);
  return failures();
}

static void two_ranks(void) {
  int children[2], outputs[2];
  begin_ranks("rank_that_trains", new_folder(), children, outputs);
  for (int rank = 0; rank < 2; ++rank) {
    int status = -1;
    waitpid(children[rank], &status, 0);
    close(outputs[rank]);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

/* Rank 1 dies after two steps, and rank 0 notices. */
int rank_that_loses(const char* folder) {
  const int rank = rank_of_this();
  etude_options* options = descent(1000);
  set(options, "output_dir", folder);
  set(options, "ddp_timeout", "20");
  etude_trainer* trainer = made(linear, options);
  OK(etude_trainer_begin(trainer, NULL));
  for (int i = 0; i < 2; ++i) OK(etude_trainer_step(trainer, batch(i), 2, NULL));
  if (rank == 1) raise(SIGKILL);
  FAILS(etude_trainer_step(trainer, batch(2), 2, NULL), ETUDE_LOST_PROCESS, "rank");
  FAILS(etude_trainer_step(trainer, batch(2), 2, NULL), ETUDE_WRONG_CALL, "no training is under way");
  etude_trainer_destroy(trainer);
  return failures();
}

static void a_lost_rank(void) {
  int children[2], outputs[2], status[2] = {-1, -1};
  begin_ranks("rank_that_loses", new_folder(), children, outputs);
  for (int rank = 0; rank < 2; ++rank) {
    waitpid(children[rank], &status[rank], 0);
    close(outputs[rank]);
  }
  CHECK(WIFEXITED(status[0]) && WEXITSTATUS(status[0]) == 0);
  CHECK(WIFSIGNALED(status[1]));
}

TESTS(processes) = {{"two processes train on their own data as one would on both", two_ranks},
                    {"a lost process is a status in the others", a_lost_rank},
                    {NULL, NULL}};
