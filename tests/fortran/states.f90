!> Checkpoints keep arrays of every rank and kind.
program states
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  use checks
  use etude
  implicit none
  real(real32), target :: f0, f1(2), f2(2, 3), f3(2, 3, 4), f4(2, 3, 4, 2), f5(2, 3, 4, 2, 3)
  real(real64), target :: d0, d1(2), d2(2, 3), d3(2, 3, 4), d4(2, 3, 4, 2), d5(2, 3, 4, 2, 3)
  integer(int32), target :: i0, i1(2), i2(2, 3), i3(2, 3, 4), i4(2, 3, 4, 2), i5(2, 3, 4, 2, 3)
  integer(int64), target :: l0, l1(2), l2(2, 3), l3(2, 3, 4), l4(2, 3, 4, 2), l5(2, 3, 4, 2, 3)
  real(real64) :: numbers(144)
  type(etude_arrays) :: kept
  type(etude_arrays) :: batch
  real(real32), target :: x(3, 1) = 1, t(2, 1) = 0
  integer :: i
  numbers = [(i + 0.5_real64, i = 1, 144)]
  call kept%add("f0", f0); call kept%add("f1", f1); call kept%add("f2", f2)
  call kept%add("f3", f3); call kept%add("f4", f4); call kept%add("f5", f5)
  call kept%add("d0", d0); call kept%add("d1", d1); call kept%add("d2", d2)
  call kept%add("d3", d3); call kept%add("d4", d4); call kept%add("d5", d5)
  call kept%add("i0", i0); call kept%add("i1", i1); call kept%add("i2", i2)
  call kept%add("i3", i3); call kept%add("i4", i4); call kept%add("i5", i5)
  call kept%add("l0", l0); call kept%add("l1", l1); call kept%add("l2", l2)
  call kept%add("l3", l3); call kept%add("l4", l4); call kept%add("l5", l5)
  call batch%add("input", x)
  call batch%add("labels", t)
  call fill(1._real64)
  call run(save=.true.)
  call fill(0._real64)
  call run(save=.false.)
  call check(f0 == 1.5 .and. all(f1 == numbers(:2)) .and. all([f2] == numbers(:6)) .and. all([f3] == numbers(:24)) .and. &
             all([f4] == numbers(:48)) .and. all([f5] == numbers), "real32 of rank 0 to 5 in checkpoints")
  call check(d0 == 1.5 .and. all(d1 == numbers(:2)) .and. all([d2] == numbers(:6)) .and. all([d3] == numbers(:24)) .and. &
             all([d4] == numbers(:48)) .and. all([d5] == numbers), "real64 of rank 0 to 5 in checkpoints")
  call check(i0 == 1 .and. all(i1 == int(numbers(:2))) .and. all([i2] == int(numbers(:6))) .and. &
             all([i3] == int(numbers(:24))) .and. all([i4] == int(numbers(:48))) .and. all([i5] == int(numbers)), &
             "int32 of rank 0 to 5 in checkpoints")
  call check(l0 == 1 .and. all(l1 == int(numbers(:2))) .and. all([l2] == int(numbers(:6))) .and. &
             all([l3] == int(numbers(:24))) .and. all([l4] == int(numbers(:48))) .and. all([l5] == int(numbers)), &
             "int64 of rank 0 to 5 in checkpoints")
  call end_checks()
contains
  subroutine fill(factor)
    real(real64), intent(in) :: factor
    real(real64) :: n(144)
    n = factor * numbers
    f0 = real(n(1)); f1 = real(n(:2)); f2 = real(reshape(n, [2, 3])); f3 = real(reshape(n, [2, 3, 4]))
    f4 = real(reshape(n, [2, 3, 4, 2])); f5 = real(reshape(n, [2, 3, 4, 2, 3]))
    d0 = n(1); d1 = n(:2); d2 = reshape(n, [2, 3]); d3 = reshape(n, [2, 3, 4])
    d4 = reshape(n, [2, 3, 4, 2]); d5 = reshape(n, [2, 3, 4, 2, 3])
    i0 = int(d0); i1 = int(d1); i2 = int(d2); i3 = int(d3); i4 = int(d4); i5 = int(d5)
    l0 = int(d0); l1 = int(d1); l2 = int(d2); l3 = int(d3); l4 = int(d4); l5 = int(d5)
  end subroutine

  subroutine run(save)
    logical, intent(in) :: save
    type(etude_trainer) :: trainer
    type(etude_options) :: options
    call plain(options, "states")
    call options%set("max_steps", 2)
    call options%add_state(kept)
    call trainer%create(model("linear.pt2"), options)
    call trainer%begin("newest")
    if (.not. save) return
    call trainer%step(batch)
    call trainer%save_checkpoint()
  end subroutine
end program
