!> Procedures of the program that a trainer calls.
module callback_tests
  use, intrinsic :: iso_fortran_env, only: real32, real64
  use checks
  use etude
  implicit none

  type :: diary
    integer :: steps = 0, other = 0
    character(:), allocatable :: saved
    real(real64) :: loss = -1
  end type

  integer :: calls = 0, messages = 0
  type(etude_trainer) :: shared
  type(diary), target :: late
  real(real32), target :: x(3, 2), t(2, 2)
  type(etude_arrays) :: batch
contains
  subroutine note(event, trainer, user, status)
    type(etude_event), intent(in) :: event
    type(etude_trainer), intent(inout) :: trainer
    class(*), intent(inout), optional :: user
    integer, intent(inout) :: status
    call check(status == etude_ok, "the status of a callback at first")
    call check(present(user), "the callback gets its user data")
    select type (user)
    type is (diary)
      select case (event%name())
      case ("StepEnd")
        user%steps = user%steps + 1
        call check(nint(trainer%number("global_step")) == user%steps, "a number of the trainer in a callback")
        call check(nint(event%number("global_step")) == user%steps, "the same number of the event")
      case ("Save")
        user%saved = event%text("checkpoint")
      case ("Log")
        if (nint(event%number("global_step")) == 1) user%loss = event%number("loss")
      case default
        user%other = user%other + 1
      end select
    class default
      call check(.false., "the type of the user data")
    end select
  end subroutine

  subroutine count_calls(event, trainer, user, status)
    type(etude_event), intent(in) :: event
    type(etude_trainer), intent(inout) :: trainer
    class(*), intent(inout), optional :: user
    integer, intent(inout) :: status
    real(real32), pointer :: weights(:, :)
    call check(.not. present(user), "a callback without user data gets none")
    call check(event%name() == "StepEnd" .and. status == etude_ok, "the other callback's event")
    call etude_point(weights, trainer%parameter("weight"))
    call check(all(shape(weights) == [3, 2]), "parameters in a callback")
    calls = calls + 1
  end subroutine

  subroutine events()
    type(etude_trainer) :: trainer
    type(etude_options) :: options
    type(diary), target :: mine, yours
    real(real32), target :: last(3, 2)
    integer :: i, status
    call plain(options, "events")
    call options%set("max_steps", 3)
    call options%set("logging_steps", 1)
    call options%set("save_strategy", "steps")
    call options%set("save_steps", 3)
    call trainer%create(model("linear.pt2"), options)
    call trainer%on("StepEnd", note, mine)
    call trainer%on("on_save", note, mine)
    call trainer%on("Log", note, mine)
    call trainer%on("on_train_begin", note, yours)
    call trainer%on("StepEnd", count_calls)
    call trainer%on("StepsEnd", note, mine, status)
    call check_error(status, etude_invalid_argument, [character(8) :: "StepsEnd", "StepEnd"], "an event that doesn't exist")
    call trainer%begin()
    do i = 1, 3
      call trainer%step(batch)
    end do
    call trainer%finish()
    call check(mine%steps == 3 .and. calls == 3, "a callback for each step")
    call check(mine%other == 0 .and. yours%other == 1 .and. yours%steps == 0, "each callback gets its own data")
    call check(allocated(mine%saved), "the event of a checkpoint")
    call check(index(mine%saved, "events/checkpoint-3") > 0, "the folder of a checkpoint")
    call check(close_to(mine%loss, sum((real(linear(x), real64) - t)**2) / 4), "the loss in a log")
    last = 0
  end subroutine

  subroutine ask_to_stop(event, trainer, user, status)
    type(etude_event), intent(in) :: event
    type(etude_trainer), intent(inout) :: trainer
    class(*), intent(inout), optional :: user
    integer, intent(inout) :: status
    if (event%number("global_step") > 1.5_real64) call trainer%request(etude_stop, status)
    if (present(user)) status = etude_failed
  end subroutine

  subroutine requests()
    type(etude_trainer) :: trainer
    type(etude_options) :: options
    logical :: done
    integer :: steps
    call plain(options, "requests")
    call options%set("max_steps", 9)
    call trainer%create(model("linear.pt2"), options)
    call trainer%on("StepEnd", ask_to_stop)
    call trainer%begin()
    done = .false.
    steps = 0
    do while (.not. done)
      call trainer%step(batch, done)
      steps = steps + 1
    end do
    call trainer%finish()
    call check(steps == 2, "a callback stops the training after two steps")
  end subroutine

  subroutine break(event, trainer, user, status)
    type(etude_event), intent(in) :: event
    type(etude_trainer), intent(inout) :: trainer
    class(*), intent(inout), optional :: user
    integer, intent(inout) :: status
    integer :: code
    call trainer%step(batch, status=code)
    call check(code == etude_wrong_call, "a step in a callback is refused")
    if (event%name() == "StepEnd" .and. .not. present(user)) status = 42
  end subroutine

  subroutine failures_of_callbacks()
    type(etude_trainer) :: trainer
    type(etude_options) :: options
    integer :: status
    call plain(options, "failures")
    call options%set("max_steps", 9)
    call trainer%create(model("linear.pt2"), options)
    call trainer%on("StepEnd", break)
    call trainer%begin()
    call trainer%step(batch, status=status)
    call check_error(status, etude_failed, ["StepEnd"], "a callback that fails ends the training")
    call trainer%step(batch, status=status)
    call check(status /= etude_ok, "it has ended")
  end subroutine

  subroutine destroy(event, trainer, user, status)
    type(etude_event), intent(in) :: event
    type(etude_trainer), intent(inout) :: trainer
    class(*), intent(inout), optional :: user
    integer, intent(inout) :: status
    call trainer%destroy()
    call shared%destroy()
    if (event%name() == "StepEnd" .and. .not. present(user)) status = etude_ok
  end subroutine

  subroutine destruction()
    type(etude_options) :: options
    integer :: status
    call plain(options, "destruction")
    call options%set("max_steps", 9)
    call shared%create(model("linear.pt2"), options)
    call shared%on("StepEnd", destroy)
    call shared%begin()
    call shared%step(batch)
    call shared%step(batch)
    call check(nint(shared%number("global_step")) == 2, "a callback can't destroy its trainer")
    call shared%cancel(status=status)
    call check(status == etude_ok, "a training is cancelled without a reason")
    call shared%destroy()
    call shared%step(batch, status=status)
    call check(status == etude_invalid_argument, "the trainer is destroyed afterwards")
  end subroutine

  subroutine count_late(event, trainer, user, status)
    type(etude_event), intent(in) :: event
    type(etude_trainer), intent(inout) :: trainer
    class(*), intent(inout), optional :: user
    integer, intent(inout) :: status
    call check(event%name() == "StepEnd" .and. trainer%parameter_count() == 2 .and. status == etude_ok, "a late callback")
    select type (user)
    type is (diary)
      user%steps = user%steps + 1
    end select
  end subroutine

  subroutine add_late(event, trainer, user, status)
    type(etude_event), intent(in) :: event
    type(etude_trainer), intent(inout) :: trainer
    class(*), intent(inout), optional :: user
    integer, intent(inout) :: status
    integer :: code
    if (nint(event%number("global_step")) == 1) call trainer%on("StepEnd", count_late, late, status)
    call check(.not. present(user), "a callback without user data gets none after another was added")
    call shared%create(model("linear.pt2"), status=code)
    call check_error(code, etude_wrong_call, ["in a callback"], "a trainer created in its own callback")
    call trainer%destroy()
    call check(trainer%parameter_count() == 2, "a callback's trainer stays as it is")
  end subroutine

  subroutine additions()
    type(etude_options) :: options
    integer :: i
    call plain(options, "additions")
    call options%set("max_steps", 3)
    call shared%create(model("linear.pt2"), options)
    call shared%on("StepEnd", add_late)
    call shared%begin()
    do i = 1, 3
      call shared%step(batch)
    end do
    call shared%finish()
    call check(late%steps == 2, "a callback that a callback has added gets the events after it")
    call shared%destroy()
  end subroutine

  !> Gradient descent by the program, for parameters of any rank.
  subroutine descend(trainer, learning_rate, user, status)
    type(etude_trainer), intent(inout) :: trainer
    real(real64), intent(in) :: learning_rate
    class(*), intent(inout), optional :: user
    integer, intent(inout) :: status
    real(real32), pointer :: parameter(:), gradient(:)
    integer :: i
    do i = 1, trainer%parameter_count()
      call etude_point(parameter, trainer%parameter(trainer%parameter_name(i)))
      call etude_point(gradient, trainer%gradient(trainer%parameter_name(i)))
      if (associated(gradient)) parameter = parameter - real(learning_rate, real32) * gradient
    end do
    select type (user)
    type is (integer)
      user = user + 1
      if (user == 5) status = etude_failed
    end select
  end subroutine

  subroutine optimizers()
    type(etude_trainer) :: trainer, other
    integer, target :: steps
    integer :: i, status
    real(real32) :: ours(3, 2), etudes(3, 2)
    real(real32), pointer :: weights(:, :)
    steps = 0
    call make(trainer, .true., steps)
    call make(other, .false., steps)
    call trainer%begin()
    call other%begin()
    do i = 1, 4
      call trainer%step(batch)
      call other%step(batch)
    end do
    call etude_point(weights, trainer%parameter("weight"))
    ours = weights
    call etude_point(weights, other%parameter("weight"))
    etudes = weights
    call check(steps == 4, "the program's optimizer makes each step")
    call check(all(ours == etudes), "it gives the weights of Etude's sgd")
    call check(any(ours /= weight), "which have changed")
    call trainer%step(batch, status=status)
    call check(status == etude_failed, "an optimizer that fails ends the training")
  end subroutine

  !> The options may go out of scope before the trainer is used.
  subroutine make(trainer, is_own, steps)
    type(etude_trainer), intent(inout) :: trainer
    logical, intent(in) :: is_own
    integer, intent(inout), target :: steps
    type(etude_options) :: options
    call plain(options, merge("own  ", "etude", is_own))
    call options%set("max_steps", 9)
    call options%set_json('{"optim_args": "fused=false"}')
    if (is_own) call options%set_optimizer(descend, steps)
    call trainer%create(model("linear.pt2"), options)
  end subroutine

  subroutine count_messages(level, text)
    integer, intent(in) :: level
    character(*), intent(in) :: text
    if (level == etude_level_warning .and. index(text, "learning_rate") > 0) messages = messages + 1
  end subroutine

  !> Resuming with another learning rate is worth a warning.
  subroutine messages_of_the_library()
    type(etude_trainer) :: trainer
    type(etude_options) :: options
    call plain(options, "messages")
    call options%set("max_steps", 3)
    call trainer%create(model("linear.pt2"), options)
    call trainer%begin()
    call trainer%step(batch)
    call trainer%save_checkpoint()
    call trainer%destroy()
    call options%set("learning_rate", 0.25)
    call etude_set_message_handler(count_messages)
    call trainer%create(model("linear.pt2"), options)
    call trainer%begin("newest")
    call trainer%step(batch)
    call check(messages > 0, "a warning goes to the program's handler")
    call etude_set_message_handler()
    messages = 0
    call trainer%create(model("linear.pt2"), options)
    call trainer%begin("newest")
    call trainer%step(batch)
    call check(messages == 0, "the handler has been removed")
  end subroutine
end module

program callbacks
  use callback_tests
  implicit none
  x = reshape([1, 2, 3, 4, 5, 6], [3, 2]) / 8.
  t = reshape([1, 0, 0, 1], [2, 2])
  call batch%add("input", x)
  call batch%add("labels", t)
  call events()
  call requests()
  call failures_of_callbacks()
  call destruction()
  call additions()
  call optimizers()
  call messages_of_the_library()
  call end_checks()
end program
