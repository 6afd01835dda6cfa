!> Arrays of the program as inputs, outputs and labels of models.
program arrays
  use, intrinsic :: iso_c_binding, only: c_loc
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  use checks
  use etude
  implicit none
  call predictions()
  call sections()
  call labels()
  call misfits()
  call end_checks()
contains
  subroutine predictions()
    type(etude_trainer) :: trainer
    type(etude_options) :: options
    type(etude_arrays) :: inputs, outputs, named
    type(etude_view) :: view
    real(real32), target :: x(3, 5), y(2, 5)
    real(real64), target :: x64(3, 5), y64(2, 5)
    real(real32), pointer :: seen(:, :)
    integer :: i
    x = reshape([(real(mod(7 * i, 11)) / 4, i = 1, 15)], [3, 5])
    call plain(options, "predictions")
    call trainer%create(model("linear.pt2"), options)
    call inputs%add("", x)
    call outputs%add("", y)
    call trainer%predict(inputs, outputs)
    call check(all(close_to(real(y, real64), real(linear(x), real64))), "the last dimension is the batch")
    call trainer%predict(inputs)
    view = trainer%output(1)
    call etude_point(seen, view)
    call check(view%rank == 2 .and. all(view%shape() == [2, 5]), "an output's sizes are in Fortran's order")
    call check(all(seen == y), "an output's memory can be seen")
    x64 = x
    call named%add("input", x64)
    call outputs%clear()
    call outputs%add("", y64)
    call trainer%predict(named, outputs)
    call check(all(close_to(y64, real(linear(x), real64))), "real64 is converted to the model's type")
    ! Replaces the array of that name.
    call named%add("input", x(:, 2:3))
    call outputs%clear()
    y = 0
    call outputs%add("", y(:, 4:5))
    call trainer%predict(named, outputs)
    call check(all(close_to(real(y(:, 4:5), real64), real(linear(x(:, 2:3)), real64))), "columns of an array")
    call check(all(y(:, :3) == 0), "the other columns stay as they are")
  end subroutine

  subroutine sections()
    type(etude_trainer) :: trainer
    type(etude_options) :: options
    type(etude_arrays) :: inputs, outputs
    real(real32), target :: big(0:7, -3:6), y(2, 5), wide(4, 10)
    real(real64), target :: cube(2, 3, 5)
    integer :: i, status
    big = reshape([(real(mod(5 * i, 13)) / 8, i = 1, 80)], [8, 10])
    call plain(options, "sections")
    call trainer%create(model("linear.pt2"), options)
    call outputs%add("", y)
    call inputs%add("input", big(1:6:2, -2:6:2))
    call trainer%predict(inputs, outputs)
    call check(all(close_to(real(y, real64), real(linear(big(1:6:2, -2:6:2)), real64))), "a section with gaps, in place")
    wide = -1
    call outputs%clear()
    call outputs%add("", wide(2:4:2, 1:10:2))
    call trainer%predict(inputs, outputs)
    call check(all(wide(2:4:2, 1:10:2) == y), "outputs go into a section with gaps")
    call check(all(wide(1:3:2, :) == -1) .and. all(wide(:, 2:10:2) == -1), "and into nothing else")
    cube = 0
    cube(2, :, :) = big(1:6:2, -2:6:2)
    call inputs%add("input", cube(2, :, :))
    y = 0
    call outputs%clear()
    call outputs%add("", y)
    call trainer%predict(inputs, outputs)
    call check(all(close_to(real(y, real64), real(linear(big(1:6:2, -2:6:2)), real64))), "a plane of a cube")
    call inputs%add("input", big(1:3, 1:1))
    call outputs%clear()
    call outputs%add("", y(:, 1:1))
    call trainer%predict(inputs, outputs)
    call check(all(close_to(real(y(:, 1:1), real64), real(linear(big(1:3, 1:1)), real64))), "a single example")
    call inputs%add("input", big(3:1:-1, 1:1))
    call trainer%predict(inputs, outputs, status=status)
    call check(status == etude_invalid_data .or. status == etude_invalid_argument, "an array in reverse order is refused")
    call inputs%add("input", big(1:3, 1:0))
    call trainer%predict(inputs, outputs, status=status)
    call check(status /= etude_ok, "an array without elements is refused")
  end subroutine

  !> Classes as int32 and int64 give the same loss, which is that of the softmax.
  subroutine labels()
    real(real32), target :: x(3, 4)
    integer(int32), target :: short(4) = [0, 1, 1, 0]
    integer(int64), target :: long(4) = [0, 1, 1, 0]
    real(real64) :: y(2, 4), expected
    type(etude_arrays) :: batch
    integer :: i
    x = reshape([(real(i) / 8, i = 1, 12)], [3, 4])
    y = linear(x)
    expected = sum([(log(sum(exp(y(:, i)))) - y(1 + short(i), i), i = 1, 4)]) / 4
    call batch%add("input", x)
    call batch%add("labels", short)
    call check(close_to(loss_of(batch), expected), "labels of int32")
    call batch%add("labels", long)
    call check(close_to(loss_of(batch), expected), "labels of int64")
  end subroutine

  real(real64) function loss_of(batch)
    type(etude_arrays), intent(in) :: batch
    type(etude_trainer) :: trainer
    type(etude_options) :: options
    call plain(options, "labels")
    call options%set("loss", "cross_entropy")
    call options%set("max_steps", 1)
    call trainer%create(model("linear.pt2"), options)
    call trainer%begin()
    call trainer%step(batch)
    loss_of = trainer%number("loss")
  end function

  !> Shapes and names that don't fit are refused, and the training goes on.
  subroutine misfits()
    type(etude_trainer) :: trainer
    type(etude_options) :: options
    type(etude_arrays) :: batch
    real(real32), target :: x(3, 4) = 1, t(2, 4) = 0, transposed(4, 3) = 1
    real(real32), pointer :: nowhere(:, :)
    integer :: i, status
    call batch%add_address("input", c_loc(x), [(1, i = 1, 16)], etude_float32, status=status)
    call check_error(status, etude_invalid_argument, [character(8) :: "16 sizes", "15"], "more dimensions than arrays have")
    call batch%add_address("input", c_loc(x), [3, 4], etude_float32, strides=[1], status=status)
    call check_error(status, etude_invalid_argument, [character(8) :: "1 values", "sizes, 2"], "too few strides")
    call plain(options, "misfits")
    call options%set("max_steps", 1)
    call trainer%create(model("linear.pt2"), options)
    call trainer%begin()
    call batch%add("input", transposed)
    call batch%add("labels", t)
    call trainer%step(batch, status=status)
    call check_error(status, etude_invalid_data, ["input"], "a transposed array")
    call batch%clear()
    call batch%add("inptu", x)
    call batch%add("labels", t)
    call trainer%step(batch, status=status)
    call check_error(status, etude_invalid_data, [character(5) :: "inptu", "input"], "the wrong name")
    call batch%clear()
    call trainer%step(batch, status=status)
    call check(status /= etude_ok, "a batch without arrays")
    call batch%add("input", x)
    call batch%add("labels", t(:, 1:3))
    call trainer%step(batch, status=status)
    call check(status == etude_invalid_data, "fewer labels than examples")
    nullify (nowhere)
    call batch%add("labels", nowhere)
    call trainer%step(batch, status=status)
    call check_error(status, etude_invalid_data, [character(6) :: "labels", "null"], "a pointer without a target")
    call batch%add("labels", t)
    call trainer%step(batch, status=status)
    call check(status == etude_ok .and. trainer%number("global_step") == 1, "the training goes on")
  end subroutine
end program
