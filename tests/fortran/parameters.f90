!> Parameters and gradients as arrays. ranks.pt2 multiplies x by the sum of all parameters' squares; element k of a parameter in
!> C's order is k / 1000.
program parameters
  use, intrinsic :: iso_fortran_env, only: real32, real64
  use checks
  use etude
  implicit none
  type(etude_trainer) :: trainer
  type(etude_options) :: options
  type(etude_arrays) :: batch
  real(real32), pointer :: s1(:), s2(:, :), s3(:, :, :), s4(:, :, :, :), s5(:, :, :, :, :)
  real(real64), pointer :: d1(:), d2(:, :), d3(:, :, :), d4(:, :, :, :), d5(:, :, :, :, :)
  real(real32), pointer :: flat(:), none(:)
  real(real64), target :: x(1, 3) = reshape([1, 2, -1], [1, 3]), t(1, 3) = reshape([0, 1, 1], [1, 3])
  real(real64) :: s, slope
  integer, parameter :: sizes(5) = [2, 6, 24, 120, 720]
  integer :: i, k, status
  call plain(options, "parameters")
  call options%set("learning_rate", 1d-6)
  call options%set("max_steps", 3)
  call trainer%create(model("ranks.pt2"), options)
  call check(trainer%parameter_count() == 10, "the number of parameters")
  call check(trainer%parameter_name(1) == "double1" .and. trainer%parameter_name(10) == "single5", "their names")
  call trainer%begin()
  call etude_point(s1, trainer%parameter("single1"))
  call etude_point(s2, trainer%parameter("single2"))
  call etude_point(s3, trainer%parameter("single3"))
  call etude_point(s4, trainer%parameter("single4"))
  call etude_point(s5, trainer%parameter("single5"))
  call etude_point(d1, trainer%parameter("double1"))
  call etude_point(d2, trainer%parameter("double2"))
  call etude_point(d3, trainer%parameter("double3"))
  call etude_point(d4, trainer%parameter("double4"))
  call etude_point(d5, trainer%parameter("double5"))
  call check(all(shape(s5) == [6, 5, 4, 3, 2]) .and. all(shape(d4) == [5, 4, 3, 2]) .and. all(shape(s2) == [3, 2]), &
             "dimensions are reversed")
  call check(s1(2) == 2e-3 .and. s2(3, 2) == 6e-3 .and. s2(2, 1) == 2e-3 .and. s3(1, 2, 1) == 5e-3 .and. &
             s4(1, 1, 1, 2) == 61e-3 .and. s5(2, 1, 1, 1, 1) == 2e-3 .and. s5(1, 1, 1, 1, 2) == 361e-3, "elements of real32")
  call check(d1(2) == 2d-3 .and. d2(3, 2) == 6d-3 .and. d2(2, 1) == 2d-3 .and. d3(1, 2, 1) == 5d-3 .and. &
             d4(1, 1, 1, 2) == 61d-3 .and. d5(2, 1, 1, 1, 1) == 2d-3 .and. d5(1, 1, 1, 1, 2) == 361d-3, "elements of real64")
  call etude_point(flat, trainer%parameter("single3"))
  call check(size(flat) == 24 .and. all(abs(flat - [(k / 1000., k = 1, 24)]) < 1e-7), "a tensor in one dimension")
  call etude_point(none, trainer%gradient("single1"))
  call check(.not. associated(none), "no gradient before the first backward pass")

  call batch%add("x", x)
  call batch%add("labels", t)
  call trainer%backward(batch)
  s = 2 * sum([(sum([((k / 1000._real64)**2, k = 1, sizes(i))]), i = 1, 5)])
  slope = sum(2 * (s * x - t) * x) / 3
  call check_gradients()
  s1(1) = 7
  call trainer%update()
  call check(close_to(real(s1(1), real64), 7 - 1d-6 * slope * 2d-3), "the optimizer steps from the program's value")
  call check(close_to(d5(6, 5, 4, 3, 2), 0.72_real64 - 1d-6 * slope * 1.44_real64), "the optimizer steps by the gradient")

  call etude_point(s2, trainer%parameter("single3"), status)
  call check_error(status, etude_invalid_data, [character(20) :: "rank 2", "has 3"], "the wrong rank")
  call check(.not. associated(s2), "the wrong rank gives no pointer")
  call etude_point(s2, trainer%parameter("double2"), status)
  call check_error(status, etude_invalid_data, [character(20) :: "real32", "real64"], "the wrong kind")
  call etude_point(s2, trainer%parameter("single9", status))
  call check_error(status, etude_invalid_argument, [character(20) :: "single9", "single"], "the wrong name")
  call check(.not. associated(s2), "the wrong name gives no pointer")
  call end_checks()
contains
  subroutine check_gradients()
    real(real32), pointer :: g3(:, :, :), all_of(:)
    real(real64), pointer :: g5(:, :, :, :, :)
    call etude_point(g3, trainer%gradient("single3"))
    call check(all(shape(g3) == [4, 3, 2]), "a gradient has the parameter's shape")
    call check(close_to(real(g3(4, 3, 2), real64), slope * 2 * 24d-3), "a gradient of real32")
    call etude_point(g5, trainer%gradient("double5"))
    call check(close_to(g5(1, 1, 1, 1, 2), slope * 2 * 361d-3), "a gradient of real64")
    call etude_point(all_of, trainer%gradient("single5"))
    call check(all(close_to(real(all_of, real64), [(slope * 2 * k / 1000, k = 1, 720)])), "a gradient in one dimension")
  end subroutine
end program
