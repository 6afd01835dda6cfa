!> Whole trainings and trainings step by step, compared with gradient descent written out.
program training
  use, intrinsic :: iso_fortran_env, only: int64, real32, real64
  use checks
  use etude
  implicit none
  real(real32), target :: x(3, 4), t(2, 4)
  integer :: i
  x = reshape([(real(mod(5 * i, 7)) / 4, i = 1, 12)], [3, 4])
  t = reshape([(real(mod(3 * i, 5)) / 2, i = 1, 8)], [2, 4])
  call steps()
  call halves()
  call whole()
  call values()
  call control()
  call resumption()
  call scopes()
  call misuse()
  call end_checks()
contains
  !> A step of gradient descent on the mean squared error, at the rate of 1/8.
  subroutine descend(w, b, loss)
    real(real64), intent(inout) :: w(3, 2), b(2)
    real(real64), intent(out) :: loss
    real(real64) :: difference(2, 4)
    difference = matmul(transpose(w), x) + spread(b, 2, 4) - t
    loss = sum(difference**2) / 8
    difference = 2 * difference / 8
    w = w - 0.125 * matmul(x, transpose(difference))
    b = b - 0.125 * sum(difference, dim=2)
  end subroutine

  logical function has(trainer, w, b)
    type(etude_trainer), intent(in) :: trainer
    real(real64), intent(in) :: w(3, 2), b(2)
    real(real32), pointer :: weights(:, :), biases(:)
    call etude_point(weights, trainer%parameter("weight"))
    call etude_point(biases, trainer%parameter("bias"))
    has = all(close_to(real(weights, real64), w)) .and. all(close_to(real(biases, real64), b))
  end function

  subroutine steps()
    type(etude_trainer) :: trainer
    type(etude_options) :: options
    type(etude_arrays) :: batch
    real(real64) :: w(3, 2), b(2), loss
    logical :: done
    w = weight
    b = bias
    call plain(options, "steps")
    call options%set("max_steps", 3)
    call trainer%create(model("linear.pt2"), options)
    call batch%add("input", x)
    call batch%add("labels", t)
    call trainer%begin()
    do i = 1, 3
      call trainer%step(batch, done)
      call descend(w, b, loss)
      call check(close_to(trainer%number("loss"), loss), "the loss of a step")
      call check(done .eqv. i == 3, "should_stop becomes true in the last step")
    end do
    call check(has(trainer, w, b), "three steps of gradient descent")
    call trainer%finish()
    call check(nint(trainer%number("global_step")) == 3, "the number of steps")
    call check(index(trainer%state(), '"global_step"') > 0 .and. index(trainer%state(), '"log_history"') > 0, "the state as JSON")
    call trainer%save_model("saved")
    inquire (file="saved/model.safetensors", exist=done)
    call check(done, "the weights are in a file")
  end subroutine

  subroutine halves()
    type(etude_trainer) :: trainer
    type(etude_options) :: options
    type(etude_arrays) :: batch
    real(real64) :: w(3, 2), b(2), loss
    logical :: done
    w = weight
    b = bias
    call plain(options, "halves")
    call options%set("max_steps", 2)
    call trainer%create(model("linear.pt2"), options)
    call batch%add("input", x)
    call batch%add("labels", t)
    call trainer%begin()
    do i = 1, 2
      call trainer%backward(batch)
      call trainer%update(done)
      call descend(w, b, loss)
    end do
    call check(done .and. has(trainer, w, b), "backward and update are a step")
    call trainer%finish()
  end subroutine

  !> A training and evaluations on datasets, a batch of two at a time.
  subroutine whole()
    type(etude_trainer) :: trainer
    type(etude_options) :: options
    type(etude_arrays) :: arrays
    type(etude_dataset) :: dataset, first
    real(real64) :: w(3, 2), b(2), loss, before
    call arrays%add("input", x)
    call arrays%add("labels", t)
    call dataset%create(arrays)
    call arrays%add("input", x(:, 1:1))
    call arrays%add("labels", t(:, 1:1))
    call first%create(arrays)
    call first%set_divided(.false.)
    call plain(options, "whole")
    call options%set_train_dataset(dataset)
    call options%add_eval_dataset(dataset, "all")
    call options%add_eval_dataset(first, "first")
    call options%set("num_train_epochs", 5)
    call options%set("per_device_train_batch_size", 4_int64)
    call trainer%create(model("linear.pt2"), options)
    call trainer%evaluate()
    before = sum((real(linear(x), real64) - t)**2) / 8
    call check(close_to(trainer%number("eval_all_loss"), before), "an evaluation")
    call check(close_to(trainer%number("eval_first_loss"), sum((real(linear(x(:, 1:1)), real64) - t(:, 1:1))**2) / 2), &
               "an evaluation by name")
    call trainer%train()
    w = weight
    b = bias
    do i = 1, 5
      call descend(w, b, loss)
    end do
    call check(has(trainer, w, b), "five epochs of one step each")
    call trainer%evaluate(dataset)
    call descend(w, b, loss)
    call check(close_to(trainer%number("eval_loss"), loss), "the evaluation of a dataset")
    call trainer%destroy()
    call dataset%destroy()
    call dataset%destroy()
  end subroutine

  !> Options of each type reach the trainer with the values that were written.
  subroutine values()
    type(etude_trainer) :: trainer
    type(etude_options) :: options
    type(etude_arrays) :: batch
    integer :: status
    call batch%add("input", x)
    call batch%add("labels", t)
    call plain(options, "values")
    call options%set("learning_rate", 1e-3)
    call options%set("max_steps", 7)
    call options%set("disable_tqdm", .true.)
    call trainer%create(model("linear.pt2"), options)
    call trainer%begin()
    call trainer%step(batch)
    call check(trainer%number("learning_rate") == 1d-3, "a real32 is the number that was written")
    call check(trainer%number("max_steps") == 7, "an integer")
    call options%set("learning_rate", 0.1_real64 + epsilon(0.1_real64))
    call trainer%create(model("linear.pt2"), options)
    call trainer%begin()
    call trainer%step(batch)
    call check(trainer%number("learning_rate") == 0.1_real64 + epsilon(0.1_real64), "a real64 keeps all digits")
    call options%set("learning_rate ", "2e-3  ")
    call trainer%create(model("linear.pt2"), options)
    call trainer%begin()
    call trainer%step(batch)
    call check(trainer%number("learning_rate") == 2d-3, "blanks at the end don't count")
    call options%set("lerning_rate", 1, status)
    call check_error(status, etude_invalid_argument, ["lerning_rate ", "learning_rate"], "an unknown option")
    call options%set("max_steps", "many", status)
    call check_error(status, etude_invalid_argument, [character(9) :: "max_steps", "many"], "an invalid value")
    call options%set("compiled_graph", "required")
    call options%set("run_compiled_code", .false.)
    call trainer%create(model("linear.pt2"), options, status)
    call check_error(status, etude_invalid_argument, ["run_compiled_code"], "a false logical")
    call options%set("run_compiled_code", .true.)
    call trainer%create(model("linear.pt2"), options, status)
    call check(status == etude_ok, "a true logical")
    call options%set_json("{", status)
    call check(status == etude_invalid_argument, "invalid JSON")
  end subroutine

  !> A training of a dataset goes on where another has ended, and one that is cancelled makes no more steps.
  subroutine control()
    type(etude_trainer) :: trainer
    type(etude_options) :: options
    type(etude_arrays) :: arrays
    type(etude_dataset) :: dataset
    real(real64) :: w(3, 2), b(2), loss
    logical :: done
    call arrays%add("input", x)
    call arrays%add("labels", t)
    call dataset%create(arrays)
    call plain(options, "control")
    call options%set_train_dataset(dataset)
    call options%set("per_device_train_batch_size", 4)
    call options%set("save_strategy", "steps")
    call options%set("save_steps", 1)
    w = weight
    b = bias
    call options%set("max_steps", 2)
    call trainer%create(model("linear.pt2"), options)
    call trainer%train()
    call descend(w, b, loss)
    call descend(w, b, loss)
    t = t + 1
    call options%set("max_steps", 3)
    call trainer%create(model("linear.pt2"), options)
    call trainer%train("newest")
    call descend(w, b, loss)
    call check(has(trainer, w, b), "two steps, and a third with other labels")
    t = t - 1
    call trainer%begin()
    call trainer%pause()
    call trainer%resume()
    call trainer%step(arrays, done)
    call check(.not. done, "a training that is resumed goes on")
    call trainer%cancel("enough")
    call trainer%step(arrays, done)
    call check(done .and. nint(trainer%number("global_step")) == 1, "a training that is cancelled makes no step")
    call trainer%finish()
  end subroutine

  !> A training that is destroyed and resumed gives the weights of one that isn't, and its arrays go on.
  subroutine resumption()
    type(etude_trainer) :: trainer
    real(real64) :: w(3, 2), b(2), loss
    real(real64), target :: field(4)
    field = 0
    call go(trainer, field, 3)
    call check(all(field == 3), "the field at the end of the first part")
    call trainer%destroy()
    field = -1
    call go(trainer, field, 4)
    call check(all(field == 4), "the field goes on from the checkpoint of step 2")
    w = weight
    b = bias
    do i = 1, 4
      call descend(w, b, loss)
    end do
    call check(has(trainer, w, b), "the weights go on from the checkpoint")
  end subroutine

  !> Trains up to a step, with a checkpoint after every second, and adds one to the field before each.
  subroutine go(trainer, field, last)
    type(etude_trainer), intent(inout) :: trainer
    real(real64), intent(inout), target :: field(:)
    integer, intent(in) :: last
    type(etude_options) :: options
    type(etude_arrays) :: batch, kept
    call plain(options, "resumption")
    call options%set("max_steps", 10)
    call options%set("save_strategy", "steps")
    call options%set("save_steps", 2)
    call kept%add("field", field)
    call options%add_state(kept)
    call trainer%create(model("linear.pt2"), options)
    call trainer%begin("newest")
    call batch%add("input", x)
    call batch%add("labels", t)
    do while (trainer%number("global_step") < last)
      field = field + 1
      call trainer%step(batch)
    end do
  end subroutine

  !> Trainers that go out of scope end their trainings, so that another may use the folder.
  subroutine scopes()
    integer :: n
    do n = 1, 3
      call scope(n)
    end do
    block
      type(etude_trainer) :: trainer
      type(etude_options) :: options
      call plain(options, "scopes")
      call trainer%create(model("linear.pt2"), options)
    end block
  end subroutine

  subroutine scope(n)
    integer, intent(in) :: n
    type(etude_trainer) :: trainer
    type(etude_options) :: options
    type(etude_arrays) :: batch
    call plain(options, "scopes")
    call options%set("max_steps", 2)
    call batch%add("input", x)
    call batch%add("labels", t)
    call trainer%create(model("linear.pt2"), options)
    call trainer%begin()
    call trainer%step(batch)
    call check(nint(trainer%number("global_step")) == 1, "training " // achar(48 + n))
  end subroutine

  subroutine misuse()
    type(etude_trainer) :: trainer, unborn
    type(etude_options) :: options
    type(etude_dataset) :: dataset
    type(etude_arrays) :: batch
    integer :: status
    real(real64) :: number
    call batch%add("input", x)
    call batch%add("labels", t)
    call trainer%create("missing.pt2", status=status)
    call check_error(status, etude_invalid_file, ["missing.pt2"], "a missing file")
    call unborn%step(batch, status=status)
    call check(status == etude_invalid_argument, "a trainer that wasn't created")
    call unborn%destroy()
    number = unborn%number("loss", status)
    call check(status == etude_invalid_argument .and. number == 0, "a number of a trainer that wasn't created")
    call options%set_train_dataset(dataset, status)
    call check(status == etude_invalid_argument, "a dataset that wasn't created")
    call plain(options, "misuse")
    call options%set("max_steps", 1)
    call trainer%create(model("linear.pt2"), options)
    call trainer%finish(status)
    call check(status == etude_wrong_call, "finish before begin")
    call trainer%train(status=status)
    call check(status == etude_invalid_argument .or. status == etude_wrong_call, "train without a dataset")
    call trainer%begin("nowhere", status)
    call check_error(status, etude_invalid_file, ["nowhere"], "a checkpoint that doesn't exist")
    number = trainer%number("los", status)
    call check_error(status, etude_invalid_argument, ["los"], "a number that doesn't exist")
    call trainer%begin(status=status)
    call check(status == etude_ok, "the trainer can still be used")
    call trainer%step(batch)
    call trainer%step(batch, status=status)
    call check(status == etude_wrong_call, "a step after the last")
    call trainer%finish()
  end subroutine
end program
