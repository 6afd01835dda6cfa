!> What the tests of the Fortran module share. They run in a folder of their own, and read models from ETUDE_TEST_MODELS.
module checks
  use, intrinsic :: iso_fortran_env, only: error_unit, real32, real64
  use etude
  implicit none
  integer :: done = 0, failures = 0
  !> The weights of linear.pt2, [2, 3] in Python, and its biases.
  real(real32), parameter :: weight(3, 2) = reshape([0., 1., 2., 3., 4., 5.], [3, 2]) / 8, bias(2) = [0.5, -0.25]
contains
  subroutine check(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what
    done = done + 1
    if (holds) return
    failures = failures + 1
    write (error_unit, "(2a)") "failed: ", what
  end subroutine

  !> The call must have failed with this status, and its error must contain all of the words.
  subroutine check_error(status, expected, words, what)
    integer, intent(in) :: status, expected
    character(*), intent(in) :: words(:), what
    integer :: i
    call check(status == expected, what)
    if (status /= expected) write (error_unit, "(a, i0, 2a)") "  status ", status, ": ", etude_error()
    do i = 1, size(words)
      call check(index(etude_error(), trim(words(i))) > 0, what // ": '" // trim(words(i)) // "' in '" // etude_error() // "'")
    end do
  end subroutine

  subroutine end_checks()
    if (done == 0) error stop "no checks"
    if (failures > 0) error stop "checks failed"
    print "(i0, a)", done, " checks passed"
  end subroutine

  elemental logical function close_to(a, b)
    real(real64), intent(in) :: a, b
    close_to = abs(a - b) <= 1e-5_real64 * max(1e-3_real64, abs(b))
  end function

  function model(name) result(path)
    character(*), intent(in) :: name
    character(:), allocatable :: path
    integer :: length
    call get_environment_variable("ETUDE_TEST_MODELS", length=length)
    allocate (character(length) :: path)
    call get_environment_variable("ETUDE_TEST_MODELS", path)
    path = path // "/" // name
  end function

  !> What linear.pt2 gives for examples in columns.
  pure function linear(x) result(y)
    real(real32), intent(in) :: x(:, :)
    real(real32) :: y(2, size(x, 2))
    y = matmul(transpose(weight), x) + spread(bias, 2, size(x, 2))
  end function

  !> Options of a plain training: the mean squared error, SGD without momentum, a constant rate of 1/8, no clipping.
  subroutine plain(options, folder)
    type(etude_options), intent(inout) :: options
    character(*), intent(in) :: folder
    call options%set("output_dir", folder)
    call options%set_json('{"loss": "mse", "optim": "sgd", "lr_scheduler_type": "constant", "max_grad_norm": 0}')
    call options%set("learning_rate", 0.125)
    call options%set("save_strategy", "no")
    call options%set("report", "quiet")
  end subroutine
end module
